// Libraries that are looked for when the program runs, so that one binary starts on machines
// without them.
#pragma once

#include <string>
#include <vector>

namespace trireme::cuda {

class Library {
 public:
  // The first of `names` ("libcudnn.so.9") that loads, looked for where the dynamic linker looks
  // (LD_LIBRARY_PATH), then in the usual places of CUDA's toolkit and of Python's wheels: those of
  // PYTHONPATH, VIRTUAL_ENV, CONDA_PREFIX, the first `python3` of PATH, the user and the system.
  // `product` is for messages: "cuDNN".
  Library(std::string product, const std::vector<std::string>& names);
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library();

  // Why it is not there; empty when it is.
  const std::string& problem() const { return problem_; }
  void* handle() const { return handle_; }           // of dlopen; null when it is not there
  const std::string& path() const { return path_; }  // of the file that was loaded

  // Its function of that name and type. Throws DeviceError when the library or the function is
  // missing.
  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(symbol(name));
  }

 private:
  void* symbol(const char* name) const;

  std::string product_;
  std::string path_;
  std::string problem_;
  void* handle_ = nullptr;
};

}  // namespace trireme::cuda
