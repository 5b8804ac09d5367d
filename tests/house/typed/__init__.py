"""What mypy and pyright say of a program that uses the public face."""
