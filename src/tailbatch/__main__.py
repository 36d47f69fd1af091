"""``python -m tailbatch`` is the command ``tailbatch``."""

from tailbatch.cli import main

if __name__ == "__main__":
    main()
