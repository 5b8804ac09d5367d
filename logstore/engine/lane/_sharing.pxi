# Calls that were asked for, on their way to a commit: alone, or in a line of threads that share a
# sync.

cdef enum:
    LINE_MAX = 128              # calls that wait in the line; more go to the pipeline
    LINE_LOOK_NS = 50000000     # who waits looks for signals so often
    GATHER_MAX_NS = 500000      # who leads waits so long at most for those who come again

cdef enum:                      # of a call in the line
    IN_LINE = 0
    IN_COMMIT = 1               # by who leads: it is committed now
    LEADS = 2
    DONE = 3

_DOUBTFUL = ("the commit may be in the log, and who made it was interrupted: do not repeat the "
             "call before the store was opened again")

cdef extern from "unistd.h":
    int getpid() noexcept nogil

cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident() noexcept nogil

cdef extern from "Python.h":
    int PyObject_IsInstance(object o, object cls) noexcept

ctypedef struct Call:           # it stands in the frame of who makes it, until it is served
    Asked* asked
    int count
    uint32_t state              # others sleep until it is another one
    bint committed
    PyObject* error             # what came of it instead
    bint doubtful               # who led was interrupted, and it is not known whether it counts


cdef class SharingLane(CommitLane):
    """Commits calls; see native.pyx.

    Under `always` a commit takes as long as its sync, and threads that add meanwhile form a line:
    the first of them leads the next commit, which is one for all of them. Everything here is
    changed with the interpreter held, and no code of Python runs between two steps but in `lead`,
    under LOCK or as it is asked for, and in handlers of signals (`signalled`). A call is out of the
    line before its thread goes on. Where the mutex or LOCK is not free, or a commit is not plain,
    the calls go to the pipeline, which shares a sync among them as well.
    """

    cdef Call* line[LINE_MAX]
    cdef unsigned long leader   # the thread that is in `lead`; 0: none is
    cdef readonly int waiting   # calls in the line, with the one that leads
    cdef int taken              # of them, from the first one on
    cdef bint led               # a thread leads, or will as soon as it runs
    cdef int expected           # calls that may come to share the next commit
    cdef bint gathers           # who leads waits for them
    cdef uint32_t arrived       # counts those who came
    cdef int fitting            # of what a commit is asked for, how much has room; -1: not known

    cdef bint commit_asked(self, Asked* asked, int count, u64 turn, list told) except -1:
        """Commit entries that were encoded; False: nothing has happened. IDs go into `told`: the
        first one of each."""
        if self.always:
            return self.commit_in_line(asked, count, turn, told)
        return self.commit_alone(asked, count, turn, told)

    cdef bint commit_alone(self, Asked* asked, int count, u64 turn, list told) except -1:
        """The same, at once."""
        cdef Tried tried
        cdef uint32_t buckets[STEPS_MAX]
        cdef int became = NOT_PLAIN
        cdef bint grouped = False
        self.fitting = -1
        if not self.try_lock():
            return False
        try:
            became = self.commit_locked(asked, count, turn, told, &tried)
            if became > COMMITTED:
                self.ask(became, &tried)
        finally:
            grouped = self.unlock(asked, count)
            self.forget_offers()
            self.release()
        if not became:
            return False
        tell(asked, count, told)
        if grouped or self.yields:
            self.wake_readers(buckets, buckets_of(asked, count, buckets), grouped)
        return True

    cdef int wake_readers(self, const uint32_t* buckets, int count, bint grouped) except -1:
        """Behind a commit: wake who waits for groups, if `unlock` said so, and let those run."""
        if grouped:
            self.engine.wake.waits.waiters.wake_buckets({buckets[i] for i in range(count)}, set())
        if self.yields:         # or they would wait until this thread's slice is over
            with nogil:
                ls_yield()
        return 0

    cdef int commit_locked(self, Asked* asked, int count, u64 turn, list told,
                           Tried* tried) except -1:
        """Decide and commit; what became of it. `turn`: of rows that are encoded; 0: none is."""
        return NOT_PLAIN

    # -- the line ----------------------------------------------------------------------------------
    cdef bint commit_in_line(self, Asked* asked, int count, u64 turn, list told) except -1:
        """Commit with the calls of other threads, if there are any."""
        cdef Call call
        late = error = None
        if self.waiting == LINE_MAX or self.is_owned() is True:
            return False
        if self.led and self.leader == PyThread_get_thread_ident():
            # a finaliser, in the midst of this: it may not wait for its own thread
            return False
        call.asked, call.count, call.committed, call.error = asked, count, False, NULL
        call.doubtful = False
        call.state = IN_LINE if self.led else LEADS
        self.led = True
        self.line[self.waiting] = &call
        self.waiting += 1
        if call.state == IN_LINE:
            self.arrived += 1
            if self.gathers and self.waiting >= self.expected:
                ls_wake(&self.arrived, 1)
            turn = 0            # others encode their rows meanwhile
            late = self.wait_in_line(&call)
        if call.state == LEADS:
            self.lead(&call, turn, told)
        if call.committed:
            tell(asked, count, told)
        if call.error != NULL:
            error = <object>call.error
            Py_XDECREF(call.error)
        elif call.doubtful:
            error = CommittedError(_DOUBTFUL)
        if late is not None:
            if call.committed and isinstance(late, Exception):
                message = f"the commit counts, do not repeat it; then: {late!r}"
                raise CommittedError(message) from late
            if error is None or (isinstance(late, KeyboardInterrupt)
                                 and not isinstance(error, CommittedError)):
                raise late
        if error is not None:
            raise error
        return call.committed

    cdef object wait_in_line(self, Call* call):
        """Sleep until the call is served, or is to lead. What a handler of a signal raises is given
        back: the call is out of the line then, or was committed meanwhile."""
        cdef uint32_t seen
        late = None
        while call.state < LEADS:
            seen = call.state
            with nogil:
                ls_sleep(&call.state, seen, LINE_LOOK_NS)
            if call.state == IN_LINE and late is None:
                late = self.signalled()
            if call.state == DONE:
                break
            if self.wake == NULL:           # closed; or in a child of a fork, where nobody leads
                self.leave_line(call)
            elif late is not None and call.state == IN_LINE:
                self.leave_line(call)
            elif late is not None and call.state == LEADS:
                self.leave_line(call)
                self.hand_on()
        return late

    cdef object signalled(self):
        """Run the handlers of signals that came; what one raised, or None. They are inside of this
        call."""
        self.busy.now = True
        try:
            PyErr_CheckSignals()
        except BaseException as exc:
            return exc
        finally:
            self.busy.now = False
        return None

    cdef void leave_line(self, const Call* call) noexcept:
        """Take a call that was not taken out of the line; nothing has happened."""
        cdef int i, left = 0
        for i in range(self.waiting):
            if self.line[i] != call:
                self.line[left] = self.line[i]
                left += 1
        self.waiting = left
        (<Call*>call).state = DONE

    cdef int lead(self, Call* own, u64 turn, list told) except -1:
        """Commit for all that are in the line, `own` being the first, and hand the lead on.

        Code of Python runs while LOCK is held, and as it is asked for: a finaliser, or a handler.
        If that forks, this goes on in the child, where the others of the line are no threads.
        """
        cdef Asked asked[STEPS_MAX]
        cdef uint32_t buckets[STEPS_MAX]
        cdef Tried tried
        cdef int count = 0, became = NOT_PLAIN, process = getpid()
        cdef bint grouped = False
        error = None
        self.leader = PyThread_get_thread_ident()
        self.gather()
        try:
            if not self.try_lock(True):
                self.taken = self.waiting       # all go to the pipeline
                return 0
            try:
                count = self.take_calls(asked, STEPS_MAX)
                became = self.commit_locked(asked, count, turn if self.taken == 1 else 0, told,
                                            &tried)
                if (became == NOT_PLAIN and self.taken > 1 and self.fitting >= 0
                        and self.wake != NULL):
                    # the first ones have room, or one that begins a node
                    self.forget_offers()
                    count = self.take_calls(asked, max(self.fitting, 1))
                    became = self.commit_locked(asked, count, 0, told, &tried)
                if became > COMMITTED:
                    self.ask(became, &tried)
                    became = COMMITTED
            except BaseException as exc:
                error = exc
                raise
            finally:
                grouped = self.unlock(asked, count)
                self.forget_offers()
                self.release()
        finally:
            if getpid() != process:     # nothing of it happened here, and the others are not here
                self.waiting = self.taken = self.led = 0
            else:
                count = buckets_of(asked, count, buckets)   # from here on handles may be freed
                self.serve(asked, became, error)
                self.hand_on()
        if own.committed:
            tell(own.asked, own.count, told)
            self.wake_readers(buckets, count, grouped)
        return 0

    cdef void gather(self) noexcept:
        """Wait for threads whose calls were committed just now, as long as half a sync: without it
        the first of them would sync for itself alone, and the others wait. A thread that does not
        come back is not waited for again."""
        cdef int64_t now_ns = ls_now_ns(MONOTONIC), until_ns
        cdef uint32_t seen
        until_ns = now_ns + min(<int64_t>GATHER_MAX_NS, self.sync_last_ns // 2)
        self.gathers = True
        while self.waiting < self.expected and now_ns < until_ns:
            seen = self.arrived
            with nogil:
                ls_sleep(&self.arrived, seen, until_ns - now_ns)
            now_ns = ls_now_ns(MONOTONIC)
        self.gathers = False

    cdef int take_calls(self, Asked* asked, int most) noexcept:
        """Take calls with so many entries at most, but one at least; how many are asked for."""
        cdef Call* call
        cdef int i, count = 0, rows = 0, more
        for i in range(self.taken):
            self.line[i].state = LEADS if not i else IN_LINE
        self.taken = 0
        while self.taken < self.waiting:
            call, more = self.line[self.taken], 0
            for i in range(call.count):
                more += call.asked[i].rows
            if count and (count + call.count > most or rows + more > STEPS_MAX):
                break
            for i in range(call.count):
                asked[count] = call.asked[i]
                asked[count].first = rows
                rows += asked[count].rows
                count += 1
            if self.taken:
                call.state = IN_COMMIT
            self.taken += 1
        return count

    cdef void serve(self, const Asked* asked, int became, error) noexcept:
        """Say what became of the calls that were taken, the first of them who leads, and wake the
        others. No code of Python runs here."""
        cdef Call* call
        cdef int i, j, at = 0, taken = self.taken, left = 0
        self.expected = self.waiting
        if became == COMMITTED:
            self.shared += taken - 1
        for i in range(taken):
            call = self.line[i]
            if became == COMMITTED:
                for j in range(call.count):
                    call.asked[j].ms, call.asked[j].seq = asked[at].ms, asked[at].seq
                    at += 1
                call.committed = True
            elif became != NOT_PLAIN and i and error is not None:
                call.doubtful = not PyObject_IsInstance(error, Exception)
                if not call.doubtful:
                    call.error = <PyObject*>error
                    Py_INCREF(call.error)
            if i:
                call.state = DONE
                ls_wake(&call.state, 1)
        for i in range(taken, self.waiting):
            self.line[left] = self.line[i]
            left += 1
        self.waiting, self.taken = left, 0

    cdef void hand_on(self) noexcept:
        """Let the next one lead, if there is one."""
        self.led = self.waiting > 0
        self.leader = 0         # until that thread runs
        if self.led:
            self.line[0].state = LEADS
            ls_wake(&self.line[0].state, 1)


cdef int buckets_of(const Asked* asked, int count, uint32_t* buckets) noexcept:
    """The buckets of streams that were added to; how many."""
    cdef int i, found = 0
    for i in range(count):
        if not asked[i].acks:
            buckets[found] = (<Handle>asked[i].handle).bucket
            found += 1
    return found


cdef int tell(const Asked* asked, int count, list told) except -1:
    """Put the first ID of each entry into `told`, and 1 for an ack, if they are not there."""
    cdef int i
    for i in range(<int>PyList_GET_SIZE(told), count):
        told.append(1 if asked[i].acks
                    else ls_id(_StreamID, asked[i].ms, asked[i].seq - (asked[i].rows - 1)))
    return 0
