"""Tests of schemas: types of columns, texts, and streams that have one."""
