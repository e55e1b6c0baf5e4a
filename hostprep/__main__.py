"""``python -m hostprep``: the same as the ``hostprep`` command."""

from hostprep.cli.main import main

if __name__ == "__main__":
    main()
