# Commits of plain adds.

cdef enum:                  # what a decision gives instead of a number
    NOT_DONE = -2           # the pipeline does it


cdef class AddLane(SharingLane):
    """Adds of one engine."""

    def add(self, bytes name not None, fields not None, list told not None, bint ascii=False,
            tuple options=None, u64 schema_at=0):
        """Commit an entry; its ID, or None: the moment is not plain; False: the entry is not, or
        its options are not.

        `fields`: a dict, or a tuple of bytes, field and value by turns; `ascii`: text beyond it is
        not stored as UTF-8; `options`: ID, max_entries, min_id, approximate, limit, create; None:
        `*`, and none; `schema_at`: of the schema by which the values were written: if the stream
        has another one, or none, the entry is not plain. The ID is put into `told`, too: whatever
        is raised then, an interrupt behind the end of this call as well, the commit counts. Lock
        order as everywhere: the mutex, then LOCK. The first is not waited for, the other one for
        some milliseconds. MemoryError, and nothing happened; what `failed` raises.
        """
        cdef Handle h
        cdef u64 turn
        cdef Asked asked
        if not self.may_try():
            return None
        h = self.handle(name)
        self.turn += 1
        turn = self.turn
        ask_nothing(&asked, ascii)
        if options is not None and not self.take_options(&asked, options):
            return False
        asked.handle, asked.name, asked.fields = <PyObject*>h, <PyObject*>name, <PyObject*>fields
        asked.version, asked.schema_at = h.version, schema_at
        if not self.encode_asked(h, &asked):
            return False
        return told[0] if self.commit_asked(&asked, 1, turn, told) else None

    def add_rows(self, bytes name not None, list rows not None, list told not None,
                 bint ascii=False, u64 schema_at=0):
        """Commit entries, each a dict, as one, in one frame; how many there were, or 0: it is not
        plain. The first one's ID is put into `told`, and the others follow it."""
        cdef Handle h
        cdef u64 turn
        cdef Asked asked
        cdef list kept
        cdef Py_ssize_t i, count
        if PyList_GET_SIZE(rows) > STEPS_MAX or not self.may_try():
            return 0
        kept = list(rows)       # nobody else changes it
        count = PyList_GET_SIZE(kept)
        if not 0 < count <= STEPS_MAX:
            return 0
        for i in range(count):
            if type(<object>PyList_GET_ITEM(kept, i)) is not dict:
                return 0
        h = self.handle(name)
        self.turn += 1
        turn = self.turn
        ask_nothing(&asked, ascii)
        asked.handle, asked.name, asked.version = <PyObject*>h, <PyObject*>name, h.version
        asked.fields = <PyObject*>kept if count > 1 else PyList_GET_ITEM(kept, 0)
        asked.rows = <int>count
        asked.schema_at = schema_at
        if not self.encode_asked(h, &asked) or not self.commit_asked(&asked, 1, turn, told):
            return 0
        return count

    cdef bint encode_asked(self, Handle h, const Asked* asked) except -1:
        """Encode the entries of a call into its rows; False: they are not plain."""
        cdef int i
        cdef u64 raw_bytes = 0
        cdef Row* row = &self.rows[asked.first]
        if asked.rows == 1:
            return h.encode(row, <object>asked.fields, asked.ascii)
        for i in range(asked.rows):
            if not h.encode(row + i, <object>PyList_GET_ITEM(<object>asked.fields, i), asked.ascii):
                return False
            raw_bytes += row[i].raw_bytes
            if raw_bytes > PLAIN_BYTES_MAX:
                return False
        return True

    cdef bint take_options(self, Asked* asked, tuple options) except -1:
        """Take what is asked for beside the entry; False: it is not plain."""
        id, max_entries, min_id, approximate, limit, create = options
        return read_asked(asked, id, max_entries, min_id, approximate, limit, create)

    def add_all(self, list entries not None, list told not None):
        """Commit entries as one, each a tuple of the stream's name, fields and options, as `add`
        has them; whether that is done. IDs are put into `told`."""
        cdef Asked asked[STEPS_MAX]
        cdef u64 turn
        # `asked` has no references of its own: what it points to is kept alive in these.
        cdef list handles = [], kept = list(entries)
        cdef int count = self.ask_all(kept, handles, asked, &turn)
        if not count or count < PyList_GET_SIZE(kept):
            return False
        return self.commit_asked(asked, count, turn, told)

    def add_each(self, list entries not None, list told not None):
        """Commit entries, which `add_all` describes, in as few commits as that can be; IDs are put
        into `told`, and behind what raises None for each entry of the commit that failed. Of those
        that are not there nothing has happened: the first one of them is not plain, or was not
        tried."""
        cdef Asked asked[STEPS_MAX]
        cdef u64 turn
        cdef list handles = [], kept = list(entries), part
        cdef int count = self.ask_all(kept, handles, asked, &turn), done = 0, end = count
        while done < count:
            part = []
            try:
                if self.commit_asked(asked + done, end - done, turn, part):
                    done, end = end, count
                elif end - done > 1 and self.wake != NULL:
                    # the first ones have room, or one begins a node: it goes alone
                    end = done + max(1, min(self.fitting, end - done - 1))
                else:
                    break
            except Exception:
                part += [None] * (end - done - len(part))
                raise
            finally:
                told += part

    cdef int ask_all(self, list kept, list handles, Asked* asked, u64* turn) except -1:
        """Encode entries for `commit_asked`; how many there are up to the first that is not
        plain."""
        cdef Handle h
        cdef Asked* one
        cdef Py_ssize_t i, count = PyList_GET_SIZE(kept)
        if not 0 < count <= STEPS_MAX or not self.may_try():
            return 0
        self.turn += 1
        turn[0] = self.turn
        for i in range(count):
            name, fields, options = <tuple?>kept[i]
            h = self.handle(<bytes?>name)
            handles.append(h)
            one = &asked[i]
            ask_nothing(one, False)
            one.first = <int>i
            if options is not None and not self.take_options(one, options):
                return i
            one.handle, one.name, one.fields = <PyObject*>h, <PyObject*>name, <PyObject*>fields
            one.version, one.acks = h.version, type(fields) is tuple
            if not one.acks and not self.encode_asked(h, one):
                return i
        return count

    def plain(self, fields not None, bint ascii=False, tuple options=None):
        """A copy of an entry for `add_all`; None if it is not plain, or its options are not."""
        cdef Row* row = &self.rows[0]
        cdef Asked asked
        if options is not None and not self.take_options(&asked, options):
            return None
        if type(fields) is not dict:
            return None
        self.turn += 1          # what stands in the row is of nobody then
        row.elements.size = row.raw_bytes = 0
        if not put_all(fields, &row.elements, &row.elements, &row.raw_bytes, ascii):
            return None
        return PyDict_Copy(fields)

    cdef int commit_locked(self, Asked* asked, int count, u64 turn, list told,
                           Tried* tried) except -1:
        """Decide and commit; what became of it. `turn`: of rows that are encoded; 0: none is."""
        cdef u64 start = ls_load(self.wake + W_APPLIED)
        cdef int64_t now_ns = ls_now_ns(MONOTONIC)
        cdef int frames
        self.fitting = -1
        if not self.may_commit_now(start, now_ns):
            return NOT_PLAIN
        if not self.are_plain(asked, count, turn, start, now_ns) or not self.lay_out(asked, count):
            if count != 1 or asked[0].rows != 1 or asked[0].acks or self.wake == NULL:
                return NOT_PLAIN
            became = NOT_PLAIN
            self.forget_offers()
            try:
                became = self.commit_begun(asked, start, now_ns, told, tried)
            except BaseException:
                self.port.take_back()
                self.forget()
                raise
            finally:
                self.tell_held(False)
            return became
        frames = count
        if self.offers_count:
            if not self.lay_out_offers(<Handle>asked[0].handle, asked[0].ms, asked[0].seq):
                return NOT_PLAIN
            frames += self.offers_count
        if not self.fits(start, self.out.size):
            return NOT_PLAIN
        if self.offers_count and not self.offer(asked[0].ms, asked[0].seq):
            return NOT_PLAIN
        # crash: what was offered is taken back by who waits, behind a look at the index
        self.put_heads(frames, start, tried)
        return self.commit_steps(asked, count, frames, None, now_ns, tried)

    cdef bint are_plain(self, Asked* asked, int count, u64 turn, u64 start,
                        int64_t now_ns) except -1:
        """Know the streams, and have the entries encoded as these are now; False: one is not
        plain."""
        cdef Handle h
        cdef int i
        cdef bint encoded, acks = False
        for i in range(count):
            h = <Handle>asked[i].handle
            if not self.is_current(h):
                self.learn(h, <bytes>asked[i].name)
            if asked[i].acks and self.is_current(h) and h.known:
                acks = True
                continue
            if not self.is_current(h) or not h.usable:
                self.fitting = i
                return False
            if (self.is_awaited_by_groups(h.bucket, now_ns // 1000000)
                    and not self.serves(h, count + asked[i].rows - 1, now_ns)):
                return False    # the pipeline hands out
            if asked[i].trims and h.nodes and not h.knows_head and not self.look_at_head(h):
                return False
        if not self.has_followed(start):
            return False
        if acks and not self.decide_acks(asked, count, start):
            return False
        # From here on no code of Python runs.
        encoded = turn == self.turn     # or other entries stand there
        for i in range(count):
            h = <Handle>asked[i].handle
            if not self.is_current(h):
                return False
            if asked[i].acks:
                continue
            if asked[i].schema_at != h.schema_at:
                return False
            encoded = encoded and asked[i].version == h.version     # or its names are others
        if encoded:
            return True
        self.turn += 1
        for i in range(count):
            h = <Handle>asked[i].handle
            if asked[i].acks:
                continue
            if not self.encode_asked(h, &asked[i]):
                return False
        return True

    cdef bint look_at_head(self, Handle h) except -1:
        """Look up the first sealed node, for a trim; False: that cannot be."""
        cdef u64 epoch = self.epoch
        found = self.port.first_node(h.number)
        if found is None or self.epoch != epoch or not self.is_current(h):
            return False
        live, ms, seq, position = found
        live -= h.marks_of(position)
        h.head_live, h.head_ms, h.head_seq, h.knows_head = live, ms, seq, True
        return True

    cdef bint lay_out(self, Asked* asked, int count) except -1:
        """Give IDs, and write the frames but for their heads; False: one has no room."""
        cdef u64 now_ms = <u64>(ls_now_ns(WALL) // 1000000)
        cdef Ahead ahead, behind
        cdef Row* row
        cdef Step* step
        cdef Handle h
        cdef int i, j, before
        self.out.size = 0
        for i in range(count):
            h, step = <Handle>asked[i].handle, &self.steps[i]
            self.fitting = i
            step.at = self.out.size
            if asked[i].acks:
                self.lay_out_ack(i)
                continue
            memset(&ahead, 0, sizeof(Ahead))
            asked[i].ms, asked[i].seq = h.last_ms, h.last_seq
            for before in range(i):
                if asked[before].handle == asked[i].handle and not asked[before].acks:
                    ahead.bytes += self.steps[before].size - HEAD - APPEND_BODY
                    ahead.elements += self.steps[before].body.elements
                    ahead.entries += asked[before].rows
                    asked[i].ms, asked[i].seq = asked[before].ms, asked[before].seq
            step.kind = KIND_APPEND
            behind = ahead
            for j in range(asked[i].rows):
                row = &self.rows[asked[i].first + j]
                if not next_id(&asked[i], now_ms, &asked[i].ms, &asked[i].seq):
                    return False
                if asked[i].trims and not stays_whole(&asked[i], h, behind.entries):
                    return False
                if not h.has_room(row, &self.limits, &behind):
                    return False
                self.put_ahead(h)
                fail(h.put_entry(&self.out, step.at, row, asked[i].ms, asked[i].seq, &behind,
                                 &step.body))
                behind.bytes = ahead.bytes + self.out.size - step.at - HEAD - APPEND_BODY
                behind.elements = ahead.elements + step.body.elements
                behind.entries += 1
            step.size = self.out.size - step.at
            self.count(h)
        return True

    # -- what is more than that --------------------------------------------------------------------
    cdef int commit_begun(self, Asked* asked, u64 start, int64_t now_ns, list told,
                          Tried* tried) except -1:
        """Commit an entry that begins a node."""
        return NOT_PLAIN

    cdef bint decide_acks(self, const Asked* asked, int count, u64 start) except -1:
        """Know what is acked; False: it is not plain, or not pending as it must be."""
        return False

    cdef int lay_out_ack(self, int i) except -1:
        """Write the frame of an ack that was decided, but for its head."""
        return 0

    cdef bint is_awaited_by_groups(self, uint32_t bucket, int64_t now_ms) noexcept nogil:
        """Whether somebody may wait for a group of a stream with this bucket."""
        return <int64_t>ls_load(self.wake + BUCKETS_AT + bucket * BUCKET + GROUPS_UNTIL) >= now_ms

    # What `Lane` does for readers of groups that wait, in the order in which it happens.
    cdef bint serves(self, Handle h, int count, int64_t now_ns) except -1:
        """Choose who is handed what is added; False: the pipeline must do it."""
        return False

    cdef bint lay_out_offers(self, Handle h, u64 ms, u64 seq) except -1:
        """Write the frames of deliveries behind that of the entry; False: they are not plain."""
        return True

    cdef bint offer(self, u64 ms, u64 seq) noexcept:
        """Tell those who wait what will be theirs; False: one does not wait any more."""
        return True
