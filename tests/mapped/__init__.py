"""Tests of pages of maps that are lost."""
