"""A job queue over a store: functions that are called later, in other processes, and their results.

``Jobs`` is the queue, its ``task`` makes a function a task, ``Task.delay`` gives a ``Job``, whose
``result`` waits for what the function returned. Workers are ``logstore work app:jobs``, or
``Jobs.work`` in a process of one's own. docs/jobs.md tells how.

It stands on what users of a store call: a queue is a stream with a consumer group.
"""

from __future__ import annotations

from logstore.jobs.queue import Jobs, JobsInfo, RunningJob
from logstore.jobs.task import Job, Task

__all__ = ["Job", "Jobs", "JobsInfo", "RunningJob", "Task"]
