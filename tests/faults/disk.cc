// A disk that breaks: a library for LD_PRELOAD that gets between a program and the C library. It
// counts the calls that change something below a folder (open for writing, write, fsync, rename,
// mkdir, unlink and their relatives), from 1, and does to them what the environment says:
//   TRIREME_DISK_FOLDER=FOLDER   absolute
//   TRIREME_DISK_FAULT="ACTION N [MORE]"
//     kill N     the process ends by SIGKILL at the N-th call, which is not carried out
//     enospc N [COUNT]   from the N-th call on all that would take room fail, or COUNT of them
//     eio N [COUNT]      from the N-th call on all fail, or COUNT of them
//     hang N     the N-th call and all after it never return
//     short N    from the N-th call on a write takes at most 1000 bytes
//     slow N MS  from the N-th call on each takes so much longer
//   TRIREME_DISK_LOG=FILE        gets a line "KIND PATH" for each call
//   TRIREME_DISK_ONLY=NAME       only calls of this kind are counted and broken: "write", "fsync",
//                                "rename", "mkdir", "open", "remove"
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

// The function that this one stands in front of.
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
  timespec rest{milliseconds / 1000, milliseconds % 1000 * 1000000};
  while (nanosleep(&rest, &rest) != 0) {
  }
}

void log(const char* kind, const std::string& path) {
  const char* file = getenv("TRIREME_DISK_LOG");
  if (!file) return;
  const int to = openat(AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  dprintf(to, "%s %s\n", kind, path.c_str());
  close(to);
}

enum class Verdict { kGoOn, kFail, kShorten };

// To be called before anything that changes what is at `path`. With kFail errno is set.
Verdict judge(const char* kind, const std::string& path) {
  static std::atomic<long> calls{0};
  const Fault& f = fault();
  if (!below(path)) return Verdict::kGoOn;
  log(kind, path);
  if (f.action.empty() || (!f.only.empty() && f.only != kind)) return Verdict::kGoOn;
  const long call = ++calls;
  if (call < f.number) return Verdict::kGoOn;
  if (f.action == "kill") raise(SIGKILL);
  if (f.action == "hang") {
    for (;;) sleep_for(1000000);
  }
  if (f.action == "slow") sleep_for(f.more);
  if (f.action == "short") return Verdict::kShorten;
  const bool takes_room = strcmp(kind, "write") == 0 || strcmp(kind, "open") == 0 ||
                          strcmp(kind, "mkdir") == 0 || strcmp(kind, "fsync") == 0;
  const bool over = f.more > 0 && call >= f.number + f.more;
  if (over) return Verdict::kGoOn;
  if (f.action == "eio" || (f.action == "enospc" && takes_room)) {
    errno = f.action == "eio" ? EIO : ENOSPC;
    return Verdict::kFail;
  }
  return Verdict::kGoOn;
}

bool fails(const char* kind, const std::string& path) {
  return judge(kind, path) == Verdict::kFail;
}

int judged_open(const char* path, int flags, mode_t mode) {
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
  return judged_open(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return judged_open(path, flags, mode);
}

ssize_t write(int file, const void* data, size_t bytes) {
  const Verdict verdict = judge("write", path_of(file));
  if (verdict == Verdict::kFail) return -1;
  if (verdict == Verdict::kShorten && bytes > 1000) bytes = 1000;
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
