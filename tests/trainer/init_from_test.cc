// Tests training that starts from the parameters of another model.
#include "trainer/checkpoint/init_from.h"

#include <fmt/format.h>

#include <cstring>

#include "runs.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/config/inputs.h"

namespace trireme::train {
namespace {

const std::string kNetwork = R"(
model { network {
  name: "resnet-small"
  layer { name: "conv1" conv2d { channels: 4 kernel: 3 padding: 1 bias: false } }
  layer { name: "bn1" batch_norm {} }
  layer { name: "relu" relu {} }
  layer { name: "flatten" flatten {} }
  layer { name: "fc" dense { units: 10 } }
  layer { name: "loss" softmax_cross_entropy {} }
} }
optimizer { sgd { momentum: 0.9 } }
schedule { learning_rate: 0.01 }
)";

struct Stored {
  std::string dtype = "F32";
  std::vector<int64_t> shape;
  std::string bytes;
};
using File = std::map<std::string, Stored>;

template <class T>
Stored stored(const std::string& dtype, const std::vector<int64_t>& shape,
              const std::vector<T>& values) {
  return {dtype, shape,
          std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T))};
}

Stored floats(const std::vector<int64_t>& shape, float value) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return stored("F32", shape, std::vector<float>(static_cast<size_t>(count), value));
}

// Writes the file as other programs do: metadata last, no alignment.
std::string to_safetensors(const File& file) {
  nlohmann::ordered_json header;
  std::string values;
  for (const auto& [name, tensor] : file) {
    header[name] = {{"data_offsets", {values.size(), values.size() + tensor.bytes.size()}},
                    {"shape", tensor.shape},
                    {"dtype", tensor.dtype}};
    values += tensor.bytes;
  }
  header["__metadata__"] = {{"made by", "a test"}};
  const std::string text = header.dump();
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text + values;
}

// Returns the network's tensors by torchvision's names.
File weights(int64_t classes = 10) {
  return {{"conv1.weight", floats({4, 3, 3, 3}, 0.5f)},
          {"bn1.weight", floats({4}, 1.5f)},
          {"bn1.bias", floats({4}, 0.25f)},
          {"bn1.running_mean", floats({4}, 2)},
          {"bn1.running_var", floats({4}, 3)},
          {"bn1.num_batches_tracked", stored<int64_t>("I64", {}, {77})},
          {"fc.weight", floats({classes, 4 * 8 * 8}, 0.125f)},
          {"fc.bias", floats({classes}, -1)}};
}

class InitFromTest : public RunTest {
 protected:
  model::Graph graph(const std::string& text = kNetwork) const {
    const Config all = parse_config(text + kCommon, "test", {});
    return build_network(all, open_data(all, data::Part::kTraining)->spec());
  }
  fs::path write(const std::string& name, const std::string& bytes) const {
    wait_for_all();  // other ranks may still read the previous file
    if (world_->rank() == 0) {
      fs::create_directories((root_ / name).parent_path());
      spill(root_ / name, bytes);
    }
    wait_for_all();
    return root_ / name;
  }
  InitialValues read(const File& file) const {
    return read_initial_values(read_stored_model(write("w.safetensors", to_safetensors(file))),
                               graph());
  }
  std::string error_of(const File& file) const {
    try {
      read(file);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no error";
  }
};

// --- Matching tensors, on each rank.

TEST_P(InitFromTest, ConvertsAllFloatTypes) {
  File file = weights();
  file["bn1.weight"] = stored<double>("F64", {4}, {1.5, -2, 0, 1e-3});
  file["bn1.bias"] = stored<uint16_t>("F16", {4}, {0x3C00, 0xC000, 0x0001, 0x7BFF});
  file["bn1.running_mean"] = stored<uint16_t>("BF16", {4}, {0x3F80, 0xC000, 0x4049, 0x0000});
  const model::Weights found = read(file).weights;
  EXPECT_EQ(found.at("bn1.weight").values, (std::vector<float>{1.5f, -2, 0, 1e-3f}));
  EXPECT_EQ(found.at("bn1.bias").values, (std::vector<float>{1, -2, std::ldexp(1.0f, -24), 65504}));
  EXPECT_EQ(found.at("bn1.running_mean").values, (std::vector<float>{1, -2, 3.140625f, 0}));
}

TEST_P(InitFromTest, RejectsOtherTypesOnlyIfTheyAreRead) {
  File file = weights();
  file["bn1.bias"] = stored<int64_t>("I64", {4}, {1, 2, 3, 4});
  try {
    read(file);
    ADD_FAILURE() << "no error";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what())
                  .find("tensor 'bn1.bias' is I64; only F32, F64, F16 and "
                        "BF16 can be read"),
              std::string::npos)
        << error.what();
  }
}

TEST_P(InitFromTest, SummaryNamesMatchedAndNewTensors) {
  EXPECT_EQ(read(weights()).summary, "7 of 7 tensors from w.safetensors (torchvision names)");
  const InitialValues other = read(weights(1000));
  EXPECT_EQ(other.summary,
            "5 of 7 tensors from w.safetensors (torchvision names); fc is newly initialized "
            "(1000 -> 10 classes)");
  EXPECT_FALSE(other.weights.contains("fc.weight"));
  File headless = weights();
  headless.erase("fc.weight");
  headless.erase("fc.bias");
  EXPECT_EQ(read(headless).summary,
            "5 of 7 tensors from w.safetensors (torchvision names); fc is not in the file and "
            "is newly initialized");
  File hugging_face;
  for (const auto& [name, tensor] : weights()) {
    const std::string rest = name.substr(name.find('.') + 1);
    hugging_face[name.starts_with("conv1") ? "resnet.embedder.embedder.convolution." + rest
                 : name.starts_with("bn1") ? "resnet.embedder.embedder.normalization." + rest
                                           : "classifier.1." + rest] = tensor;
  }
  EXPECT_EQ(read(hugging_face).summary, "7 of 7 tensors from w.safetensors (Hugging Face names)");
}

TEST_P(InitFromTest, ListsTensorsThatDoNotFitWithTheNearestName) {
  File file = weights();
  file["bn2.weight"] = floats({4}, 1);
  file["bn1.bais"] = file["bn1.bias"];
  file.erase("bn1.bias");
  file["conv1.weight"] = floats({4, 3, 5, 5}, 1);
  const std::string error = error_of(file);
  for (const char* line : {"model.init_from: ", "w.safetensors does not fit the network:\n",
                           "\n  'bn1.bias' is missing; did you mean 'bn1.bais'?",
                           "\n  'conv1.weight' is [4, 3, 5, 5], but the network needs [4, 3, 3, 3]",
                           "\n  'bn1.bais' is not in the network; did you mean 'bn1.bias'?",
                           "\n  'bn2.weight' is not in the network; did you mean 'bn1.weight'?"}) {
    EXPECT_NE(error.find(line), std::string::npos) << line << "\nin " << error;
  }
  // The last layer may have other outputs, not other inputs.
  File narrow = weights(1000);
  narrow["fc.weight"] = floats({1000, 64}, 1);
  EXPECT_NE(error_of(narrow).find("'fc.weight' is [1000, 64], but the network needs [10, 256]"),
            std::string::npos);
  for (int i = 0; i < 20; ++i) file["extra" + std::to_string(i) + ".weight"] = floats({1}, 1);
  EXPECT_TRUE(error_of(file).ends_with("\n  and 14 more")) << error_of(file);
}

TEST_P(InitFromTest, NamesOfAFileCannotActOnTheTerminal) {
  File file = weights();
  file["x\nwarning: forged \x1b[2J"] = floats({4}, 1);
  file[std::string(30000, 'y')] = floats({4}, 1);
  const std::string error = error_of(file);
  EXPECT_NE(error.find("\n  'x\\nwarning: forged \\x1b[2J' is not in the network"),
            std::string::npos)
      << error;
  EXPECT_LT(error.size(), 1000u);
}

TEST_P(InitFromTest, RefusesTensorsThatOverlap) {
  // Many large tensors in a small file: the same values are named twice.
  const std::string values(64, 'x');
  for (const auto& [second, refused] : std::map<std::string, bool>{
           {"[0,64]", true}, {"[60,64]", true}, {"[64,64]", false}, {"[32,48]", true}}) {
    const size_t bytes = second == "[0,64]"    ? 64
                         : second == "[60,64]" ? 4
                         : second == "[64,64]" ? 0
                                               : 16;
    const std::string header =
        fmt::format(R"({{"a":{{"dtype":"F32","shape":[16],"data_offsets":[0,64]}},)"
                    R"("b":{{"dtype":"F32","shape":[{}],"data_offsets":{}}}}})",
                    bytes / 4, second);
    const uint64_t length = header.size();
    const fs::path path =
        write("overlap.safetensors",
              std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + values);
    try {
      const SafetensorsReader reader(path);
      EXPECT_FALSE(refused) << second;
    } catch (const DataError& error) {
      EXPECT_TRUE(refused) << second;
      EXPECT_NE(std::string(error.what()).find("tensors 'a' and 'b' overlap"), std::string::npos)
          << error.what();
    }
  }
}

TEST_P(InitFromTest, ReadsShardsByTheirIndex) {
  File first = weights();
  File second;
  second["fc.weight"] = first.extract("fc.weight").mapped();
  second["fc.bias"] = first.extract("fc.bias").mapped();
  write("shards/a.safetensors", to_safetensors(first));
  write("shards/b.safetensors", to_safetensors(second));
  nlohmann::json index;
  for (const auto& [name, tensor] : first) index["weight_map"][name] = "a.safetensors";
  for (const auto& [name, tensor] : second) index["weight_map"][name] = "b.safetensors";
  const fs::path path = write("shards/model.safetensors.index.json", index.dump());
  EXPECT_EQ(read_initial_values(read_stored_model(path), graph()).weights.size(), 7u);
  EXPECT_EQ(read_initial_values(read_stored_model(path.parent_path()), graph()).weights.size(), 7u);
  const auto refused = [&](const nlohmann::json& changed, const std::string& part) {
    write("shards/model.safetensors.index.json", changed.dump());
    try {
      read_weights(path);
      ADD_FAILURE() << "no error";
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  for (const char* file : {"../b.safetensors", "/b.safetensors", "..", "."}) {
    nlohmann::json changed = index;
    changed["weight_map"]["fc.bias"] = file;
    refused(changed, fmt::format("names '{}', which is not a file in its folder", file));
  }
  nlohmann::json changed = index;
  changed["weight_map"]["zz"] = "b.safetensors";
  refused(changed, "states that tensor 'zz' is in b.safetensors, which has no such tensor");
  changed = index;
  changed["weight_map"]["fc.bias"] = "a.safetensors";
  refused(changed, "states that tensor 'fc.bias' is in a.safetensors, which has no such tensor");
  changed = index;
  changed["weight_map"].erase("fc.bias");
  refused(changed, "has tensor 'fc.bias', which is not listed in model.safetensors.index.json");
  second["bn1.bias"] = floats({4}, 9);  // a second one
  write("shards/b.safetensors", to_safetensors(second));
  refused(index,
          "b.safetensors: has tensor 'bn1.bias', which is in a.safetensors according to "
          "model.safetensors.index.json");
  changed = index;
  changed["weight_map"] = {"a.safetensors"};
  refused(changed, "model.safetensors.index.json: is damaged");
}

// The rows of the last layer are those of the classes of the same names.
TEST_P(InitFromTest, MatchesOutputsByTheNamesOfTheClasses) {
  File file = weights();
  std::vector<float> rows, bias;
  for (int row = 0; row < 10; ++row) {
    rows.insert(rows.end(), 256, static_cast<float>(row));
    bias.push_back(static_cast<float>(10 * row));
  }
  file["fc.weight"] = stored("F32", {10, 256}, rows);
  file["fc.bias"] = stored("F32", {10}, bias);
  StoredModel model = read_stored_model(write("w.safetensors", to_safetensors(file)));
  model.class_names = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
  const model::Graph network = graph();
  EXPECT_EQ(read_initial_values(model, network, model.class_names).summary,
            "7 of 7 tensors from w.safetensors (torchvision names)");
  const std::vector<std::string> reversed(model.class_names.rbegin(), model.class_names.rend());
  const InitialValues initial = read_initial_values(model, network, reversed);
  EXPECT_NE(initial.summary.find("; the outputs of fc are put in the order of the data's classes"),
            std::string::npos);
  EXPECT_EQ(initial.weights.at("fc.bias").values, std::vector<float>(bias.rbegin(), bias.rend()));
  EXPECT_EQ(initial.weights.at("fc.weight").values, std::vector<float>(rows.rbegin(), rows.rend()));
  EXPECT_EQ(initial.weights.at("bn1.bias").values, std::vector<float>(4, 0.25f));
  // The data has fewer classes than the network.
  EXPECT_EQ(read_initial_values(model, network, {"c", "a"}).weights.at("fc.bias").values,
            (std::vector<float>{20, 0, 10, 30, 40, 50, 60, 70, 80, 90}));
  std::vector<std::string> others = reversed;
  others[3] = "x";
  try {
    read_initial_values(model, network, others);
    ADD_FAILURE() << "no error";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("class 'x' of the data is not a name of one of its 10 outputs, which are "
                        "'a', 'b'"),
              std::string::npos)
        << text;
  }
  std::vector<std::string> numbers, labels;
  for (int i = 0; i < 10; ++i) {
    numbers.push_back(std::to_string(i));
    labels.push_back("LABEL_" + std::to_string(i));
  }
  EXPECT_NE(read_initial_values(model, network, numbers)
                .summary.find("; the data does not name the classes, so the outputs are taken in "
                              "order: 'a', 'b'"),
            std::string::npos);
  model.class_names = labels;
  EXPECT_EQ(read_initial_values(model, network, numbers).weights.at("fc.bias").values, bias);
  EXPECT_NE(read_initial_values(model, network, reversed)
                .summary.find("; the file does not name the classes"),
            std::string::npos);
}

TEST_P(InitFromTest, FindsTheNamesOfTheClasses) {
  const std::string model = to_safetensors(weights());
  const auto names = [&](const fs::path& path) { return read_stored_model(path).class_names; };
  const fs::path file = write("named/model.safetensors", model);
  EXPECT_TRUE(names(file).empty());
  write("named/config.json", R"({"id2label": {"1": "dog", "0": "cat"}})");
  EXPECT_EQ(names(file), (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(names(file.parent_path()), (std::vector<std::string>{"cat", "dog"}));
  for (const char* wrong : {R"({"id2label": {"1": "dog"}})", R"({"id2label": ["cat"]})",
                            R"({"id2label": {"0": 1}})", "{", "[]"}) {
    write("named/config.json", wrong);
    EXPECT_THROW(names(file), DataError) << wrong;
  }
  run(kNetwork, "first", {"train.max_steps=1"});
  const fs::path samples = folder("first") / "samples.json";
  nlohmann::json json = nlohmann::json::parse(slurp(samples));
  json["class_names"] = {"p", "q"};
  write("first/samples.json", json.dump());
  EXPECT_EQ(names(folder("first")), (std::vector<std::string>{"p", "q"}));
  EXPECT_EQ(names(checkpoint("first", 1) / "model.safetensors"),
            (std::vector<std::string>{"p", "q"}));
}

// Before the data is trained on with outputs of another order.
TEST_P(InitFromTest, ComparesWhatConfigJsonDescribes) {
  const fs::path path = write("resnet/model.safetensors", to_safetensors(weights()));
  const std::vector<std::string> from{"model.init_from=" + path.string(), "train.max_steps=1"};
  write("resnet/config.json", R"({"model_type": "resnet", "downsample_in_bottleneck": true})");
  expect_agreed_error([&] { run(kNetwork, "run", from); }, ExitCode::kBadConfig,
                      "'downsample_in_bottleneck' is true, but Trireme computes only what false "
                      "means");
  EXPECT_FALSE(fs::exists(folder("run")));
  write("resnet/config.json", R"({"model_type": "resnet", "downsample_in_bottleneck": false})");
  run(kNetwork, "run", from);
}

TEST_P(InitFromTest, RejectsPicklesAndUnknownFiles) {
  const auto refused = [&](const fs::path& path, const std::string& part) {
    try {
      read_weights(path);
      ADD_FAILURE() << "no error";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  refused(write("resnet18.pth", "x"), "convert it: python -c \"import sys, torch;");
  refused(write("it's.pth", "x"), "/it'\\''s.pth'");
  refused(write("weights.txt", "x"), "is not a *.safetensors");
  refused(root_ / "none.safetensors", "none.safetensors: no such file or folder");
}

// --- Complete runs.

// Its averages would be left out.
TEST_P(InitFromTest, ACheckpointWithoutItsManifestIsRefused) {
  run(kNetwork, "whole", {"train.max_steps=1", "optimizer.ema.decay=0.5"});
  if (world_->rank() != 0) return;
  fs::copy(checkpoint("whole", 1), root_ / "copy");
  fs::remove(root_ / "copy/manifest.json");
  try {
    read_weights(root_ / "copy");
    ADD_FAILURE() << "no error";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("copy/manifest.json: cannot be read"),
              std::string::npos)
        << error.what();
  }
}

TEST_P(InitFromTest, StartsFromTheFileAndResumesFromItsOwnCheckpoint) {
  const fs::path file = write("w.safetensors", to_safetensors(weights()));
  const std::vector<std::string> from = {"model.init_from=" + file.string(),
                                         "schedule.learning_rate=0", "model.freeze=bn1.*"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), from.begin(), from.end());
    return more;
  };
  run(kNetwork, "run", with({"train.max_steps=1"}));
  if (world_->rank() == 0) {
    const SafetensorsReader reader(checkpoint("run", 1) / "model.safetensors");
    for (const auto& [name, tensor] : weights()) {
      if (tensor.dtype != "F32") continue;
      const std::vector<float> values = reader.read(name);
      ASSERT_EQ(values.size() * sizeof(float), tensor.bytes.size());
      EXPECT_EQ(std::memcmp(values.data(), tensor.bytes.data(), tensor.bytes.size()), 0) << name;
    }
  }
  run(kNetwork, "straight", with({"train.max_steps=12", "schedule.learning_rate=0.01"}));
  run(kNetwork, "halves", with({"train.max_steps=5", "schedule.learning_rate=0.01"}));
  wait_for_all();
  if (world_->rank() == 0) fs::remove(file);  // not needed to resume
  wait_for_all();
  run(kNetwork, "halves", with({"train.max_steps=12", "schedule.learning_rate=0.01"}));
  EXPECT_EQ(trace("straight").size(), 12u);
  EXPECT_EQ(trace("halves"), trace("straight"));
}

TEST_P(InitFromTest, AcceptsARunAndACheckpoint) {
  run(kNetwork, "first", {"train.max_steps=4"});
  for (const fs::path& from : {folder("first"), checkpoint("first", 4)}) {
    const std::string name = "from-" + from.filename().string();
    run(kNetwork, name,
        {"model.init_from=" + from.string(), "train.max_steps=1", "schedule.learning_rate=0",
         "model.freeze=bn1.*"});
    EXPECT_EQ(model(name, 1), model("first", 4));
  }
}

TEST_P(InitFromTest, RejectsAFileThatDoesNotFitBeforeWritingAnything) {
  File file = weights();
  file.erase("conv1.weight");
  const fs::path path = write("w.safetensors", to_safetensors(file));
  expect_agreed_error([&] { run(kNetwork, "run", {"model.init_from=" + path.string()}); },
                      ExitCode::kBadConfig, "'conv1.weight' is missing");
  file = weights();
  file["bn1.bias"] = stored("F32", {4}, std::vector<float>{0, 1, NAN, 2});
  write("w.safetensors", to_safetensors(file));
  expect_agreed_error([&] { run(kNetwork, "run", {"model.init_from=" + path.string()}); },
                      ExitCode::kBadData, "w.safetensors: value 2 of bn1.bias is nan");
  EXPECT_FALSE(fs::exists(folder("run")));
}

TEST_P(InitFromTest, ConfigurationHashIgnoresTheFolderOfTheFile) {
  const auto hash = [&](const std::string& path) {
    return config_hash(config(kNetwork, "run", {"model.init_from=" + path}).run);
  };
  EXPECT_EQ(hash("/a/w.safetensors"), hash("/b/w.safetensors"));
  EXPECT_NE(hash("/a/w.safetensors"), hash("/a/v.safetensors"));
}

TRIREME_ON_ALL_DEVICES(InitFromTest);

}  // namespace
}  // namespace trireme::train
