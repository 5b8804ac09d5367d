"""Commands that run until they are stopped: a server, pages in a browser, workers of a queue."""
