/* A disk that fails to order, between a program and its files below FAULTY_DIR.

   Preloaded, it numbers each write, truncation and sync of these files from 1, and each change of
   names in these directories. `faulty_arm` says which of them fails, and how; `faulty_journal` has
   all of them recorded in a file, in the order in which they were done, so that a test can say what
   a power cut would have left. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum { NOTHING, ONCE, FROM_THEN, TORN, DIES, SLOW };

static int point, armed, kind, error, journal = -1;

void faulty_arm(int at, int how, int with) { point = 0; armed = at; kind = how; error = with; }
int faulty_points(void) { return point; }

static void record(const char *text, const void *data, size_t size) {
    if (journal < 0) return;
    if (syscall(SYS_write, journal, text, strlen(text)) < 0 ||
        (size && syscall(SYS_write, journal, data, size) < 0))
        abort();
}

void faulty_note(const char *text) { record(text, NULL, 0); }
void faulty_journal(const char *path) {
    if (journal >= 0) syscall(SYS_close, journal);
    journal = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
}

/* The name of a path that counts, or NULL; of the whole disk it is "". */
static const char *below(const char *path) {
    const char *place = getenv("FAULTY_DIR");
    size_t length = place ? strlen(place) : 0;
    if (!place || strncmp(path, place, length) || (path[length] && path[length] != '/')) return NULL;
    return strstr(path, "-shm") ? NULL : path + length + !!path[length];
}

/* The name of an open file that counts, or NULL. */
static const char *name_of(int fd) {
    static __thread char path[4096];
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return NULL;
    path[size] = 0;
    return below(path);
}

/* Whether the next operation fails: then errno says how. */
static int fails(void) {
    point++;
    if (!armed || (kind == FROM_THEN || kind == SLOW ? point < armed : point != armed)) return 0;
    if (kind == SLOW) { usleep(2000); return 0; }
    errno = error;
    return 1;
}

static ssize_t written(int fd, const void *data, size_t size, off64_t at, const char *name) {
    ssize_t done = syscall(SYS_pwrite64, fd, data, size, at);
    if (done > 0) {
        char text[4200];
        snprintf(text, sizeof text, "W %s %lld %lld\n", name, (long long)at, (long long)done);
        record(text, data, done);
    }
    return done;
}

static ssize_t put(int fd, const void *data, size_t size, off64_t at) {
    const char *name = name_of(fd);
    if (!name) return syscall(SYS_pwrite64, fd, data, size, at);
    if (fails()) {
        if (kind == TORN || kind == DIES) {
            size_t part = size > 1024 ? size / 2 / 512 * 512 : size / 2;
            written(fd, data, part, at, name);
            if (kind == DIES) _exit(9);
            errno = error;
        }
        return -1;
    }
    return written(fd, data, size, at, name);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { return put(fd, data, size, at); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return put(fd, data, size, at); }

ssize_t write(int fd, const void *data, size_t size) {
    if (!name_of(fd)) return syscall(SYS_write, fd, data, size);
    off64_t at = lseek64(fd, 0, SEEK_CUR);
    ssize_t done = put(fd, data, size, at);
    if (done > 0) lseek64(fd, at + done, SEEK_SET);
    return done;
}

static int cut(int fd, off64_t size) {
    const char *name = name_of(fd);
    if (!name) return syscall(SYS_ftruncate, fd, size);
    if (fails()) { if (kind == DIES) _exit(9); return -1; }
    int done = syscall(SYS_ftruncate, fd, size);
    char text[4200];
    snprintf(text, sizeof text, "T %s %lld\n", name, (long long)size);
    if (!done) record(text, NULL, 0);
    return done;
}

int ftruncate64(int fd, off64_t size) { return cut(fd, size); }
int ftruncate(int fd, off_t size) { return cut(fd, size); }

static int sync_of(int fd, long number) {
    const char *name = name_of(fd);
    if (!name) return syscall(number, fd);
    if (fails()) { if (kind == DIES) _exit(9); return -1; }
    struct stat found;
    int of_names = !fstat(fd, &found) && S_ISDIR(found.st_mode);
    char text[4200];
    snprintf(text, sizeof text, "S %s%s\n", name, !of_names ? "" : *name ? "/." : ".");
    record(text, NULL, 0);
    return 0; /* nothing here outlives the machine: the journal says what was promised */
}

int fsync(int fd) { return sync_of(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_of(fd, SYS_fdatasync); }

static int reserved(int fd, off64_t at, off64_t size) {
    if (name_of(fd) && fails()) { if (kind == DIES) _exit(9); return error; }
    return syscall(SYS_fallocate, fd, 0, at, size) ? errno : 0;
}

int posix_fallocate(int fd, off_t at, off_t size) { return reserved(fd, at, size); }
int posix_fallocate64(int fd, off64_t at, off64_t size) { return reserved(fd, at, size); }

/* A change of names: C a new file, D a new directory, U one that goes, R another name. */
static int renamed(const char *what, const char *name, const char *other, int done) {
    char text[8400];
    snprintf(text, sizeof text, other ? "%s %s %s\n" : "%s %s\n", what, name, other);
    if (!done) record(text, NULL, 0);
    return done;
}

static int opened(int in, const char *path, int flags, mode_t mode) {
    const char *name = in == AT_FDCWD || *path == '/' ? below(path) : NULL;
    int is_new = name && flags & O_CREAT && syscall(SYS_faccessat, AT_FDCWD, path, F_OK);
    if (is_new && fails()) { if (kind == DIES) _exit(9); return -1; }
    int fd = syscall(SYS_openat, in, path, flags, mode);
    if (is_new) renamed("C", name, NULL, fd < 0);
    return fd;
}

#define MODE(flags) mode_t mode = 0; \
    if ((flags) & O_CREAT) { va_list all; va_start(all, flags); mode = va_arg(all, mode_t); va_end(all); }

int open(const char *path, int flags, ...) { MODE(flags) return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return opened(AT_FDCWD, path, flags, mode); }
int openat(int in, const char *path, int flags, ...) { MODE(flags) return opened(in, path, flags, mode); }
int openat64(int in, const char *path, int flags, ...) { MODE(flags) return opened(in, path, flags, mode); }

int unlink(const char *path) {
    const char *name = below(path);
    if (name && syscall(SYS_faccessat, AT_FDCWD, path, F_OK)) name = NULL; /* nothing goes */
    if (name && fails()) { if (kind == DIES) _exit(9); return -1; }
    int done = syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    return name ? renamed("U", name, NULL, done) : done;
}

int rename(const char *path, const char *to) {
    const char *name = below(path), *other = below(to);
    if (name && fails()) { if (kind == DIES) _exit(9); return -1; }
    int done = syscall(SYS_renameat2, AT_FDCWD, path, AT_FDCWD, to, 0);
    return name && other ? renamed("R", name, other, done) : done;
}

int mkdir(const char *path, mode_t mode) {
    const char *name = below(path);
    if (name && !syscall(SYS_faccessat, AT_FDCWD, path, F_OK)) name = NULL; /* nothing comes */
    if (name && fails()) { if (kind == DIES) _exit(9); return -1; }
    int done = syscall(SYS_mkdirat, AT_FDCWD, path, mode);
    return name ? renamed("D", name, NULL, done) : done;
}
