/* Writes each sync and each renaming of this process, in their order and with their threads, to the
   file that SPECK_TEST_CALLS names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static void record(const char *what, const char *first, const char *second) {
    char line[8192];
    const char *file = getenv("SPECK_TEST_CALLS");
    int length = snprintf(line, sizeof line, "%ld\t%s\t%s\t%s\n",
                          syscall(SYS_gettid), what, first, second);
    int calls = file == NULL ? -1 : open(file, O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (calls >= 0) {
        ssize_t written = write(calls, line, (size_t) length);
        (void) written;
        close(calls);
    }
}

static int record_sync(const char *call, int fd) {
    char link[64], path[4096];
    ssize_t length;
    int result = ((int (*)(int)) dlsym(RTLD_NEXT, call))(fd);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    if (result == 0 && length > 0) {
        path[length] = 0;
        record("sync", path, "");
    }
    return result;
}

int fsync(int fd) {
    return record_sync("fsync", fd);
}

int fdatasync(int fd) {
    return record_sync("fdatasync", fd);
}

int rename(const char *from, const char *to) {
    int result = ((int (*)(const char *, const char *)) dlsym(RTLD_NEXT, "rename"))(from, to);
    if (result == 0) {
        record("rename", from, to);
    }
    return result;
}
