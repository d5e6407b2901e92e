"""What experiments and fault tests watch a fog with: numbered feeds, checkers, disturbances.

Nothing in `speck` imports them.
"""
