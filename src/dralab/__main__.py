"""`python -m dralab` is the command `dralab`."""

from dralab.cli.main import main

if __name__ == "__main__":
    main()
