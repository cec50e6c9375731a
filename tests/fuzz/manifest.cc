// The manifest of a checkpoint whose other files are valid.
#include <filesystem>
#include <fstream>

#include "tests/fuzz/fuzz.h"
#include "trainer/checkpoint/checkpoint.h"

namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "trireme-fuzz-XXXXXX").string();
    trireme::fuzz::require(mkdtemp(name.data()) != nullptr, "creating a temporary folder succeeds");
    path_ = name;
    write("model.safetensors", "weights");
    write("optimizer.safetensors", "");
    write("state.json", trireme::train::to_json({}));
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const fs::path& path() const { return path_; }
  void write(const char* name, std::string_view text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }

 private:
  fs::path path_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Folder folder;
  folder.write("manifest.json", trireme::fuzz::text_of(data, size));
  trireme::fuzz::accept_or_throw<trireme::ConfigError>([&] {  // for a newer format
    trireme::fuzz::accept_or_throw<trireme::DataError>(
        [&] { trireme::train::open_checkpoint(folder.path()); });
  });
  return 0;
}
