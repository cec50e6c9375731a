// Simulates a disk that fails: a library for LD_PRELOAD that intercepts calls to the C library. It
// counts, from 1, the calls that change something below a folder (open for writing, write, fsync,
// rename, mkdir, unlink and similar ones). The environment says what happens to them:
//   TRIREME_DISK_FOLDER=FOLDER   an absolute path
//   TRIREME_DISK_FAULT="ACTION N [MORE]"
//     kill N             kills the process at the N-th call, before the call is carried out
//     enospc N [COUNT]   from the N-th call on, all calls that need space fail, or COUNT of them
//     eio N [COUNT]      from the N-th call on, all calls fail, or COUNT of them
//     hang N             from the N-th call on, no call returns
//     short N            from the N-th call on, a write accepts at most 1000 bytes
//     slow N MS          from the N-th call on, each call takes MS milliseconds longer
//   TRIREME_DISK_LOG=FILE        receives a line "KIND PATH" for each call
//   TRIREME_DISK_ONLY=KIND       only calls of this kind are counted and fail: "write", "fsync",
//                                "rename", "mkdir", "open" or "remove"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <sstream>
#include <string>

namespace {

struct Fault {
  std::string folder;
  std::string action;
  std::string only;
  long number = 0;
  long more = 0;
};

const Fault& fault() {
  static const Fault once = [] {
    Fault fault;
    const auto get = [](const char* name) {
      const char* value = getenv(name);
      return std::string(value ? value : "");
    };
    fault.folder = get("TRIREME_DISK_FOLDER");
    fault.only = get("TRIREME_DISK_ONLY");
    std::istringstream words(get("TRIREME_DISK_FAULT"));
    words >> fault.action >> fault.number >> fault.more;
    return fault;
  }();
  return once;
}

// Returns the function of the C library that has this name.
template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

bool below(const std::string& path) {
  const std::string& folder = fault().folder;
  return !folder.empty() && path.starts_with(folder) &&
         (path.size() == folder.size() || path[folder.size()] == '/');
}

std::string path_of(int file) {
  char path[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const ssize_t length = readlink(link.c_str(), path, sizeof path);
  return length > 0 ? std::string(path, static_cast<size_t>(length)) : std::string();
}

std::string path_at(int folder, const char* path) {
  if (path[0] == '/') return path;
  if (folder != AT_FDCWD) return path_of(folder) + "/" + path;
  char here[PATH_MAX];
  return getcwd(here, sizeof here) ? std::string(here) + "/" + path : path;
}

void sleep_for(long milliseconds) {
  timespec remaining{milliseconds / 1000, milliseconds % 1000 * 1000000};
  while (nanosleep(&remaining, &remaining) != 0) {
  }
}

void log(const char* kind, const std::string& path) {
  const char* file = getenv("TRIREME_DISK_LOG");
  if (!file) return;
  const int to = openat(AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  dprintf(to, "%s %s\n", kind, path.c_str());
  close(to);
}

enum class Effect { kNone, kFail, kShorten };

// Counts a call that changes `path` and applies the fault. Must be called before each. Returns what
// the call is to do; sets errno for kFail.
Effect intercept(const char* kind, const std::string& path) {
  static std::atomic<long> calls{0};
  const Fault& f = fault();
  if (!below(path)) return Effect::kNone;
  log(kind, path);
  if (f.action.empty() || (!f.only.empty() && f.only != kind)) return Effect::kNone;
  const long call = ++calls;
  if (call < f.number) return Effect::kNone;
  if (f.action == "kill") raise(SIGKILL);
  if (f.action == "hang") {
    for (;;) sleep_for(1000000);
  }
  if (f.action == "slow") sleep_for(f.more);
  if (f.action == "short") return Effect::kShorten;
  const bool needs_space = strcmp(kind, "write") == 0 || strcmp(kind, "open") == 0 ||
                           strcmp(kind, "mkdir") == 0 || strcmp(kind, "fsync") == 0;
  const bool over = f.more > 0 && call >= f.number + f.more;
  if (over) return Effect::kNone;
  if (f.action == "eio" || (f.action == "enospc" && needs_space)) {
    errno = f.action == "eio" ? EIO : ENOSPC;
    return Effect::kFail;
  }
  return Effect::kNone;
}

bool fails(const char* kind, const std::string& path) {
  return intercept(kind, path) == Effect::kFail;
}

int intercepted_open(const char* path, int flags, mode_t mode) {
  const bool changes = (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) != 0;
  if (changes && fails("open", path_at(AT_FDCWD, path))) return -1;
  return openat(AT_FDCWD, path, flags, mode);
}

mode_t mode_of(int flags, va_list rest) {
  return (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return intercepted_open(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return intercepted_open(path, flags, mode);
}

ssize_t write(int file, const void* data, size_t bytes) {
  const Effect effect = intercept("write", path_of(file));
  if (effect == Effect::kFail) return -1;
  if (effect == Effect::kShorten && bytes > 1000) bytes = 1000;
  return next<ssize_t(int, const void*, size_t)>("write")(file, data, bytes);
}

int fsync(int file) { return fails("fsync", path_of(file)) ? -1 : next<int(int)>("fsync")(file); }

int fdatasync(int file) {
  return fails("fsync", path_of(file)) ? -1 : next<int(int)>("fdatasync")(file);
}

int rename(const char* from, const char* to) {
  if (fails("rename", path_at(AT_FDCWD, to))) return -1;
  return next<int(const char*, const char*)>("rename")(from, to);
}

int mkdir(const char* path, mode_t mode) {
  if (fails("mkdir", path_at(AT_FDCWD, path))) return -1;
  return next<int(const char*, mode_t)>("mkdir")(path, mode);
}

int unlink(const char* path) {
  return fails("remove", path_at(AT_FDCWD, path)) ? -1 : next<int(const char*)>("unlink")(path);
}

int unlinkat(int folder, const char* path, int flags) {
  if (fails("remove", path_at(folder, path))) return -1;
  return next<int(int, const char*, int)>("unlinkat")(folder, path, flags);
}

int rmdir(const char* path) {
  return fails("remove", path_at(AT_FDCWD, path)) ? -1 : next<int(const char*)>("rmdir")(path);
}

int remove(const char* path) {
  return fails("remove", path_at(AT_FDCWD, path)) ? -1 : next<int(const char*)>("remove")(path);
}

}  // extern "C"
