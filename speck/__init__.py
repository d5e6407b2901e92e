"""speck: stream applications composed of jobs that run at many sites."""
