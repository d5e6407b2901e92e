/* While the file that SPECK_TEST_SICK names is there, no sync of this process succeeds. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static int sick(void) {
    const char *file = getenv("SPECK_TEST_SICK");
    return file != NULL && access(file, F_OK) == 0;
}

int fdatasync(int fd) {
    if (sick()) {
        errno = EIO;
        return -1;
    }
    return (int) syscall(SYS_fdatasync, fd);
}

int fsync(int fd) {
    if (sick()) {
        errno = EIO;
        return -1;
    }
    return (int) syscall(SYS_fsync, fd);
}
