"""The only code that touches the machine: commands, files, mounts, locks, systemd."""
