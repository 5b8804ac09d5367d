"""Tests of the codec: both codecs in one run."""
