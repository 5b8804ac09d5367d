/* Below a process whose disk is slow: each fdatasync takes 0.3 seconds more. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

int fdatasync(int fd) {
    static int (*real)(int);
    struct timespec pause = {0, 300000000}, left;
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    while (nanosleep(&pause, &left)) pause = left;
    return real(fd);
}
