/* Loaded before the C library (LD_PRELOAD): kills the process at one of its calls of the system.
   KILL_AT is the name of a call and which of them, counted from the moment that the file KILL_FROM
   is there; KILL_HOW says what is done before: none of it, half of a write, or all. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int counted;

static int due(const char *name) {
    const char *at = getenv("KILL_AT"), *from = getenv("KILL_FROM");
    size_t size = strlen(name);
    if (!at || !from || strncmp(at, name, size) || at[size] != ':') return 0;
    if (access(from, F_OK)) return 0;
    return ++counted == atoi(at + size + 1);
}

static int how(const char *what) {
    const char *given = getenv("KILL_HOW");
    return given && !strcmp(given, what);
}

#define REAL(type, name, ...) type (*real)(__VA_ARGS__) = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

int flock(int fd, int op) {
    REAL(int, flock, int, int);
    int kills = due("flock"), code;
    if (kills && how("none")) kill(getpid(), SIGKILL);
    code = real(fd, op);
    if (kills) kill(getpid(), SIGKILL);
    return code;
}

static ssize_t written(ssize_t (*real)(int, const void *, size_t, off_t), int fd, const void *p, size_t n, off_t at) {
    int kills = due("pwrite");
    ssize_t done;
    if (kills && how("none")) kill(getpid(), SIGKILL);
    done = real(fd, p, kills && how("half") ? n / 2 : n, at);
    if (kills) kill(getpid(), SIGKILL);
    return done;
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at) {
    REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
    return written(real, fd, p, n, at);
}

ssize_t pwrite64(int fd, const void *p, size_t n, off_t at) {
    REAL(ssize_t, pwrite64, int, const void *, size_t, off_t);
    return written(real, fd, p, n, at);
}

int fdatasync(int fd) {
    REAL(int, fdatasync, int);
    int kills = due("fdatasync"), code;
    if (kills && how("none")) kill(getpid(), SIGKILL);
    code = real(fd);
    if (kills) kill(getpid(), SIGKILL);
    return code;
}
