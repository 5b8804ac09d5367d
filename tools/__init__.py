"""The commands of `logstore`, and what they share; each is loaded when it is used."""
