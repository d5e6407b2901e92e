"""From the desired state to running jobs: plans, their operations, and changes that carry them out.

Imports `speck.sites` and `speck.store`. `planner` is pure. Begin with `deployer`, then
`planner`, `changes` and `execution`.
"""
