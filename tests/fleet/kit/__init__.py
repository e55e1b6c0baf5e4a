"""Real Debian hosts for tests: a base system made once, booted with systemd, reached over SSH."""
