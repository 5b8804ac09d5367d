/* Loaded before the C library (LD_PRELOAD): tells where the lane of this process stands, in a word
   that outlives a SIGKILL, and stops there for a moment now and then, so that a killer finds it.
   The lane is one call of C, so its steps are told from its calls of the system; those of others are
   let through as they are. It does nothing before `linger_arm`. Numbers are those of Step and Task
   in tests/crash/steps.py, the kinds of frames those of logstore/format.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { OUTSIDE = 0, LOCKED = 2, ANNOUNCED = 5, HALF_APPENDED, APPENDED, SYNCING, SYNCED, PUBLISHED = 12 };
enum { NONE = 0, LANE = 10, LANE_ADD, LANE_READ, LANE_ACK };
enum { KIND_AT = 28, KIND_DELIVER = 35, KIND_ACK = 36 };
enum { STOP_MS = 40 };

static volatile unsigned char *word;    /* step, task, whether nobody is to stop any more */
static int wanted_step, wanted_task, task;
static unsigned int seed;

void linger_arm(unsigned char *at, int step, int of, unsigned int from) {
    wanted_step = step; wanted_task = of; seed = from; word = at;
}

static int of_lane(void *caller) {
    Dl_info found;
    if (!word || syscall(SYS_gettid) != getpid()) return 0;
    return dladdr(caller, &found) && found.dli_fname && strstr(found.dli_fname, "engine/lane/native");
}

static int64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void at(int step) {
    struct timespec some = {0, 200000};
    int64_t until;
    word[0] = step; word[1] = step == OUTSIDE ? NONE : task;
    if (step != wanted_step || task != wanted_task || rand_r(&seed) % 2) return;
    until = now_us() + rand_r(&seed) % (STOP_MS * 1000);
    while (now_us() < until && !word[2]) nanosleep(&some, NULL);
}

#define REAL(type, name, ...) type (*real)(__VA_ARGS__) = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

int flock(int fd, int op) {
    REAL(int, flock, int, int);
    int code, its = of_lane(__builtin_return_address(0));
    if (its && op == LOCK_UN) at(PUBLISHED);
    code = real(fd, op);
    if (!its || code) return code;
    if (op != LOCK_UN) task = LANE;
    at(op == LOCK_UN ? OUTSIDE : LOCKED);
    return code;
}

static ssize_t written(ssize_t (*real)(int, const void *, size_t, off_t), int fd, const void *p, size_t n, off_t where) {
    const unsigned char *bytes = p;
    ssize_t half, rest;
    if (n <= KIND_AT) return real(fd, p, n, where);
    task = bytes[KIND_AT] == KIND_DELIVER ? LANE_READ : bytes[KIND_AT] == KIND_ACK ? LANE_ACK : LANE_ADD;
    at(ANNOUNCED);
    half = real(fd, p, n / 2, where);
    if (half < 0) return half;
    at(HALF_APPENDED);
    rest = real(fd, bytes + half, n - half, where + half);
    at(APPENDED);
    return rest < 0 ? half : half + rest;
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t where) {
    REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
    return of_lane(__builtin_return_address(0)) ? written(real, fd, p, n, where) : real(fd, p, n, where);
}

ssize_t pwrite64(int fd, const void *p, size_t n, off_t where) {
    REAL(ssize_t, pwrite64, int, const void *, size_t, off_t);
    return of_lane(__builtin_return_address(0)) ? written(real, fd, p, n, where) : real(fd, p, n, where);
}

int fdatasync(int fd) {
    REAL(int, fdatasync, int);
    int code, its = of_lane(__builtin_return_address(0));
    if (its) at(SYNCING);
    code = real(fd);
    if (its) at(SYNCED);
    return code;
}
