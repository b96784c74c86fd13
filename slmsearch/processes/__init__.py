"""Child processes that cannot outlive who started them: started, told their settings and secrets, watched, ended."""
