// Libraries that are loaded at run time with dlopen, so that one binary also starts on machines
// that lack them.
#pragma once

#include <string>
#include <vector>

namespace trireme::cuda {

class Library {
 public:
  // Loads the first of `names` ("libcudnn.so.9") that can be loaded. Searches the path of the
  // dynamic linker (LD_LIBRARY_PATH), then the default folders of the CUDA toolkit and of Python
  // wheels: those of PYTHONPATH, VIRTUAL_ENV, CONDA_PREFIX, the first `python3` in PATH, the user
  // and the system. `product` is the name for messages ("cuDNN").
  Library(std::string product, const std::vector<std::string>& names);
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library();

  // Returns why the library could not be loaded; empty if it was.
  const std::string& problem() const { return problem_; }
  void* handle() const { return handle_; }           // from dlopen; null if it was not loaded
  const std::string& path() const { return path_; }  // of the loaded file

  // Returns the function with this name and type. Throws DeviceError if the library or the function
  // is missing.
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
