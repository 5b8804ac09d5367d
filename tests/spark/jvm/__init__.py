"""Tests of the parts of the reader in the JVM, each by a Java program that pytest drives."""
