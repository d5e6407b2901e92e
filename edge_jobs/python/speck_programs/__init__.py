"""The traffic application's jobs as programs, for sites where a JVM does not fit.

They give the same records as the Java jobs of the same names (edge_jobs/README.md, "Jobs"). Each
module is an entry of `speck-programs.pyz`: `speck_programs.clean`, `.forward`, `.local_stats`.
"""
