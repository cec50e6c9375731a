// End-to-end tests of `trireme data show`, `trireme data stats` and `trireme data pack`.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <signal.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "data/data.pb.h"
#include "data/dataset.h"
#include "data/images/codec.h"
#include "data/sampler.h"
#include "tests/launch/program.h"

namespace trireme::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

// Writes a configuration for these samples, which is never trained.
std::string config(const Scratch& scratch, const std::string& data) {
  return scratch.write("run.txtpb", fmt::format(R"(
    model {{ zoo {{ name: "mlp" }} }}
    data {{ root: "{}" {} }}
    batch {{ global: 4 }}
    train {{ epochs: 1 }}
    optimizer {{ sgd {{}} }}
    schedule {{ learning_rate: 0.1 }}
  )",
                                                scratch.path().string(), data));
}

// An image of one color, plus 1 in the column x = 1.
std::string png(int height, int width, std::array<int, 3> color) {
  data::Image image;
  const data::ImageView view = image.reshape({height, width}, 3);
  for (int y = 0; y < height; ++y) {
    for (int i = 0; i < 3 * width; ++i) {
      view.row(y)[i] = static_cast<uint8_t>(color[static_cast<size_t>(i % 3)] + (i / 3 == 1));
    }
  }
  const std::vector<uint8_t> bytes = data::encode_png(view);
  return {bytes.begin(), bytes.end()};
}

void write_folder(const Scratch& scratch) {
  for (const char* folder : {"train/cat", "train/dog", "val/cat", "val/dog"}) {
    std::filesystem::create_directories(scratch / folder);
  }
  scratch.write("train/cat/0.png", png(4, 4, {10, 20, 30}));
  scratch.write("train/cat/1.png", png(4, 4, {30, 20, 10}));
  scratch.write("train/dog/0.png", png(4, 4, {50, 50, 50}));
  scratch.write("val/cat/0.png", png(6, 4, {1, 2, 3}));
  scratch.write("val/dog/0.png", png(4, 8, {1, 2, 3}));
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++found;
  return found;
}

TEST(DataStats, MeasuresImagesInFolders) {
  const Scratch scratch;
  write_folder(scratch);
  const std::string path = config(scratch, "image_folder {}");
  const Outcome outcome = run({"data", "stats", path, "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["samples"], 3);
  EXPECT_EQ(json["input"], "[3, 4, 4]");
  EXPECT_EQ(json["classes"], Json::parse(R"([{"name": "cat", "count": 2},
                                             {"name": "dog", "count": 1}])"));
  // A quarter of the pixels are brighter by 1.
  const std::array<std::array<double, 3>, 3> colors = {{{10, 20, 30}, {30, 20, 10}, {50, 50, 50}}};
  for (size_t c = 0; c < 3; ++c) {
    double sum = 0, squares = 0;
    for (const auto& color : colors) {
      sum += color[c] + 0.25;
      squares += 0.75 * color[c] * color[c] + 0.25 * (color[c] + 1) * (color[c] + 1);
    }
    const double mean = sum / 3;
    EXPECT_NEAR(json["mean"][c], mean / 255, 1e-8);
    EXPECT_NEAR(json["std"][c], std::sqrt(squares / 3 - mean * mean) / 255, 1e-8);
  }
  EXPECT_EQ(json["height"], Json::parse(R"({"min": 4, "median": 4, "max": 4})"));
  EXPECT_EQ(json["bad_records"]["count"], 0);

  const Outcome text = run({"data", "stats", path});
  EXPECT_EQ(text.code, 0) << text.error;
  for (const std::string& part : {std::string("cat"), std::string("PNG 3"), std::string("bad"),
                                  json["normalize"].get<std::string>()}) {
    EXPECT_THAT(text.out, HasSubstr(part));
  }
}

// The input statistics include the transforms; the sizes of the files do not.
TEST(DataStats, MeasuresTransformedImages) {
  const Scratch scratch;
  write_folder(scratch);
  const std::string path =
      config(scratch,
             "image_folder {} transform { center_crop { size: 2 } } eval_transform { "
             "center_crop { size: 2 } }");
  const Outcome outcome = run({"data", "stats", path, "--json", "--part", "eval"});
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["samples"], 2);
  EXPECT_EQ(json["input"], "[3, 2, 2]");
  EXPECT_EQ(json["height"], Json::parse(R"({"min": 4, "median": 5, "max": 6})"));
  EXPECT_EQ(json["width"], Json::parse(R"({"min": 4, "median": 6, "max": 8})"));
  // The column x = 1 is half of the crop of the first image, and is not in that of the second.
  EXPECT_NEAR(json["mean"][0], 1.25 / 255, 1e-8);
}

TEST(DataStats, NamesEveryBadRecord) {
  const Scratch scratch;
  write_folder(scratch);
  const std::string complete = png(4, 4, {1, 1, 1});
  scratch.write("train/dog/1.png", complete.substr(0, complete.size() / 2));
  scratch.write("train/dog/2.png", png(5, 5, {1, 1, 1}));
  const std::string path = config(scratch, "image_folder {}");
  const Outcome outcome = run({"data", "stats", path});
  EXPECT_EQ(outcome.code, 3) << outcome.error;
  for (const char* part : {"dog/1.png", "dog/2.png", "2 records", "read     3 samples"}) {
    EXPECT_THAT(outcome.out, HasSubstr(part));
  }
  const std::vector<std::string> skip = {"--set", "data.on_bad_record=SKIP"};
  EXPECT_EQ(run({"data", "stats", path, skip[0], skip[1]}).code, 0);
  EXPECT_EQ(run({"data", "stats", path, skip[0], skip[1], "--set", "data.max_bad_records=1"}).code,
            3);
}

TEST(DataStats, NamesEveryBadRowOfATable) {
  const Scratch scratch;
  std::string rows;
  for (int i = 0; i < 20; ++i) rows += i % 2 == 0 ? "1,2,0\n" : "1,x,1\n";
  scratch.write("x.csv", rows);
  const std::string path = config(scratch, "csv { train_file: 'x.csv' classes: 2 } holdout: 0.5");
  const Outcome outcome = run({"data", "stats", path, "--json"});
  EXPECT_EQ(outcome.code, 3) << outcome.error;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["samples"], 5);
  EXPECT_EQ(json["bad_records"]["count"], 10);
  EXPECT_EQ(json["bad_records"]["named"].size(), 10);
}

TEST(DataStats, MeasuresFeatures) {
  const Scratch scratch;
  scratch.write("x.csv", "1,10,5,0\n2,10,6,1\n3,10,9,1\n6,10,12,2\n");
  const std::string path =
      config(scratch, "csv { train_file: 'x.csv' eval_file: 'x.csv' scale: 0.5 }");
  const Json json = Json::parse(run({"data", "stats", path, "--json"}).out);
  EXPECT_THAT(json["mean"].get<std::vector<double>>(), ::testing::ElementsAre(1.5, 5, 4));
  const auto stddev = json["std"].get<std::vector<double>>();
  EXPECT_NEAR(stddev[0], std::sqrt(3.5) / 2, 1e-9);
  EXPECT_EQ(stddev[1], 0);
  // A constant channel is divided by 1.
  EXPECT_EQ(json["normalize"], "normalize { mean: [1.5, 5, 4] std: [0.9354, 1, 1.369] }");
  const Json some = Json::parse(run({"data", "stats", path, "--json", "--samples", "2"}).out);
  EXPECT_EQ(some["samples"], 2);
  EXPECT_THAT(some["mean"].get<std::vector<double>>(), ::testing::ElementsAre(1, 5, 3.5));
}

// There was one mean and std for all columns of a table with more than 20.
TEST(DataStats, MeasuresEachColumnOfAWideTable) {
  const Scratch scratch;
  std::string rows;
  for (int i = 0; i < 3; ++i) {
    for (int c = 0; c < 30; ++c) rows += fmt::format("{},", c == 29 ? 1000000 + i : c + i);
    rows += i == 0 ? "0\n" : "1\n";
  }
  scratch.write("x.csv", rows);
  const std::string path = config(scratch, "csv { train_file: 'x.csv' eval_file: 'x.csv' }");
  const Json json = Json::parse(run({"data", "stats", path, "--json"}).out);
  const Outcome text = run({"data", "stats", path});
  EXPECT_THAT(text.out, HasSubstr("30 channels, mean 1 to 1e+06, std 0.8165 to 0.8165"));
  EXPECT_THAT(text.out, HasSubstr(json["normalize"].get<std::string>()));
  DataConfig data;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(json["normalize"], &data));
  ASSERT_EQ(data.normalize().mean_size(), 30);
  ASSERT_EQ(data.normalize().std_size(), 30);
  for (int c = 0; c < 29; ++c) EXPECT_EQ(data.normalize().mean(c), static_cast<float>(c + 1));
  EXPECT_EQ(data.normalize().mean(29), 1000001.0F);  // 4 digits are not enough
}

TEST(DataStats, GivesNoStatisticsOfTheFewImagesOfTheFirstSize) {
  const Scratch scratch;
  write_folder(scratch);
  scratch.write("train/dog/0.png", png(5, 4, {50, 50, 50}));
  scratch.write("train/dog/1.png", png(4, 5, {50, 50, 50}));
  const std::string path = config(scratch, "image_folder {}");
  const Outcome text = run({"data", "stats", path});
  EXPECT_EQ(text.code, 3) << text.error;
  EXPECT_THAT(text.out, HasSubstr("no mean and std, since only 2 of 4 samples could be read"));
  EXPECT_THAT(text.out, ::testing::Not(HasSubstr("normalize")));
  const Json json = Json::parse(run({"data", "stats", path, "--json"}).out);
  EXPECT_TRUE(json["normalize"].is_null() && json["mean"].is_null() && json["std"].is_null());
}

TEST(DataStats, WarnsOfClassesWithoutSamples) {
  const Scratch scratch;
  scratch.write("x.csv", "1,1\n2,2\n3,3\n4,2\n");
  const std::string path = config(scratch, "csv { train_file: 'x.csv' eval_file: 'x.csv' }");
  EXPECT_THAT(run({"data", "stats", path}).out,
              HasSubstr("\nwarning  class 0 has no training samples\n"));
  EXPECT_THAT(run({"config", "check", path}).out,
              HasSubstr("warning   class 0 has no training samples; labels are expected"));
  EXPECT_THAT(run({"train", path, "--run-dir", (scratch / "run").string()}).out,
              HasSubstr("warning: class 0 has no training samples; labels are expected"));
}

TEST(DataShow, WritesAPageOfDigits) {
  const Scratch scratch;
  const std::string page = (scratch / "digits.html").string();
  const std::vector<std::string> show = {"data",
                                         "show",
                                         TRIREME_SOURCE "/launch/configs/digits.txtpb",
                                         "--set",
                                         "data.root=" TRIREME_SOURCE "/data/digits",
                                         "-o",
                                         page,
                                         "--samples",
                                         "10",
                                         "--columns",
                                         "5"};
  const Outcome outcome = run(show);
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr(page + ": 10 samples"));
  const std::string first = read_file(page);
  EXPECT_EQ(count(first, "<figure>"), 10u);
  EXPECT_EQ(count(first, "<img alt=\"\" width=\"128\" height=\"128\" src=\"data:image/png;base64,"),
            10u);
  EXPECT_THAT(first, HasSubstr("repeat(5, 128px); image-rendering: pixelated"));
  EXPECT_THAT(first, ::testing::EndsWith("</html>\n"));
  // The page is self-contained.
  EXPECT_EQ(count(first, "src="), 10u);
  EXPECT_EQ(count(first, "://"), 0u);

  // The page is reproducible; another epoch has other samples.
  ASSERT_EQ(run(show).code, 0);
  EXPECT_EQ(read_file(page), first);
  std::vector<std::string> later = show;
  later.insert(later.end(), {"--epoch", "2"});
  ASSERT_EQ(run(later).code, 0);
  EXPECT_NE(read_file(page), first);
}

TEST(DataShow, ShowsTheTrainingSamplesBitwiseAndInOrder) {
  const Scratch scratch;
  write_folder(scratch);
  const std::string data =
      "image_folder {} transform { random_crop { size: 4 padding: 2 fill: 90 } }";
  const std::string page = (scratch / "samples.html").string();
  const Outcome outcome = run({"data", "show", config(scratch, data), "--out", page, "--epoch", "2",
                               "--set", "seed=5", "--samples", "2"});
  ASSERT_EQ(outcome.code, 0) << outcome.error;

  DataConfig format;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(data, &format));
  format.set_root(scratch.path().string());
  const auto dataset =
      data::open_dataset(format, data::Part::kTraining, {.seed = 5, .progress = {}});
  const data::Order order({}, 5, 1, dataset->size());
  std::string text = read_file(page);
  EXPECT_EQ(count(text, "<figure>"), 2u);
  for (int64_t i = 0; i < 2; ++i) {
    data::Image image;
    const data::ImageView view = image.reshape({4, 4}, 3);
    int32_t label = 0;
    dataset->read({order(i), 1}, reinterpret_cast<std::byte*>(view.pixels),
                  reinterpret_cast<std::byte*>(&label));
    const std::string where = dataset->where(order(i));
    const std::string figure = fmt::format(
        "data:image/png;base64,{}\"><figcaption>{}\n<small title=\"{}\">sample {}: {}</small>",
        base64(data::encode_png(view)), label == 0 ? "cat" : "dog", where, order(i),
        std::filesystem::path(where).filename().string());
    const size_t at = text.find(figure);
    ASSERT_NE(at, std::string::npos) << text;
    text.erase(0, at + figure.size());
  }
}

TEST(DataShow, ScalesImagesToASuitableSize) {
  const Scratch scratch;
  const auto shown = [&](int height, int width, const std::vector<std::string>& options = {}) {
    for (const char* part : {"train", "val"}) {
      std::filesystem::create_directories(scratch / part / "cat");
      scratch.write(std::string(part) + "/cat/0.png", png(height, width, {1, 2, 3}));
    }
    const std::string page = (scratch / "samples.html").string();
    std::vector<std::string> command = {"data", "show", config(scratch, "image_folder {}"), "-o",
                                        page};
    command.insert(command.end(), options.begin(), options.end());
    EXPECT_EQ(run(command).code, 0);
    return read_file(page);
  };
  EXPECT_THAT(shown(28, 20), HasSubstr("width=\"80\" height=\"112\""));  // by an integer
  EXPECT_THAT(shown(100, 150), HasSubstr("width=\"150\" height=\"100\""));
  const std::string large = shown(224, 448);
  EXPECT_THAT(large, HasSubstr("width=\"160\" height=\"80\""));
  EXPECT_THAT(large, HasSubstr("repeat(auto-fill, 160px); image-rendering: auto"));
  EXPECT_THAT(shown(1, 3000), HasSubstr("width=\"160\" height=\"1\""));
  EXPECT_THAT(shown(2, 3, {"--zoom", "10"}), HasSubstr("width=\"30\" height=\"20\""));
}

TEST(DataShow, EscapesNamesForHtml) {
  const Scratch scratch;
  for (const char* folder : {"train/<b>&\"cat", "val/<b>&\"cat"}) {
    std::filesystem::create_directories(scratch / folder);
    scratch.write(std::string(folder) + "/0.png", png(4, 4, {10, 20, 30}));
  }
  const std::string page = (scratch / "samples.html").string();
  const Outcome outcome = run({"data", "show", config(scratch, "image_folder {}"), "--out", page});
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  const std::string text = read_file(page);
  EXPECT_THAT(text, HasSubstr("<figcaption>&#60;b&#62;&#38;&#34;cat\n"));
  EXPECT_EQ(count(text, "<b>"), 0u);
}

TEST(DataShow, PrintsRowsOfNumbers) {
  const Scratch scratch;
  scratch.write("x.csv", "1,10,0\n2,20,1\n3.5,30,1\n");
  const std::string path =
      config(scratch, "csv { train_file: 'x.csv' eval_file: 'x.csv' } shuffle: false");
  const Outcome outcome = run({"data", "show", path});
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("\n0: 1 10\n1: 2 20\n1: 3.5 30\n"));
  const Outcome refused = run({"data", "show", path, "--out", (scratch / "no.html").string()});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.error, HasSubstr("--out: only images are written to a file"));
}

TEST(DataShow, PrintsTokensAsText) {
  const Scratch scratch;
  scratch.write("x.txt", "to be or not to be");
  const std::string path =
      config(scratch, "text { train_file: 'x.txt' eval_file: 'x.txt' length: 5 } shuffle: false");
  const Outcome outcome = run({"data", "show", path, "--samples", "2"});
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("--- sample 1 ---\nto be\n"));
}

TEST(DataShow, ReportsInvalidArguments) {
  const Scratch scratch;
  write_folder(scratch);
  const std::string path = config(scratch, "image_folder {}");
  const Outcome nowhere = run({"data", "show", path, "--out", (scratch / "no/x.html").string()});
  EXPECT_EQ(nowhere.code, 1);
  EXPECT_THAT(nowhere.error, HasSubstr("no/x.html: cannot be created: No such file"));
  const Outcome png_name = run({"data", "show", path, "--out", "x.png"});
  EXPECT_EQ(png_name.code, 2);
  EXPECT_THAT(png_name.error,
              HasSubstr("x.png: data show writes an HTML page; choose a name *.html"));
  const Outcome ranks = run({"data", "show", path}, 2);
  EXPECT_EQ(ranks.code, 2);
  EXPECT_THAT(ranks.error, HasSubstr("one rank"));
  EXPECT_EQ(run({"data"}).code, 2);
  EXPECT_EQ(run({"data", "show", path, "--part", "neither"}).code, 2);
  EXPECT_THAT(run({"data", "--help"}).out, HasSubstr("stats"));
}

// Parses the `data` section that `data pack` prints.
DataConfig printed_config(const std::string& out) {
  const size_t begin = out.find("data {") + 6;
  DataConfig data;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      out.substr(begin, out.rfind('}') - begin), &data))
      << out;
  return data;
}

TEST(DataPack, PrintsAConfigurationThatReadsTheShards) {
  const Scratch scratch;
  write_folder(scratch);
  const std::string shards = (scratch / "shards").string();
  const Outcome training = run({"data", "pack", scratch.path().string(), shards});
  ASSERT_EQ(training.code, 0) << training.error;
  EXPECT_THAT(training.out, HasSubstr("3 samples in 1 shard"));
  EXPECT_EQ(training.error, "");
  const Outcome evaluation =
      run({"data", "pack", scratch.path().string(), shards, "--part", "eval"});
  ASSERT_EQ(evaluation.code, 0) << evaluation.error;
  const DataConfig data = printed_config(evaluation.out);
  EXPECT_EQ(data::open_dataset(printed_config(training.out), data::Part::kTraining)->size(), 3);
  DataConfig cropped = data;
  cropped.add_eval_transform()->mutable_center_crop()->add_size(4);
  const auto samples = data::open_dataset(cropped, data::Part::kEvaluation);
  EXPECT_EQ(samples->size(), 2);
  EXPECT_EQ(samples->class_names(), (std::vector<std::string>{"cat", "dog"}));
  const Outcome other = run({"data", "pack", scratch.path().string(), shards, "--resize", "2"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.error, HasSubstr("were packed with other settings: resize is 2 now and was 0"));
}

TEST(DataPack, WritesTextAsTokens) {
  const Scratch scratch;
  const std::string path =
      config(scratch, "text { train_file: '" + scratch.write("text.txt", "to be or not to be") +
                          "' length: 4 random_offset: true } holdout: 0.3");
  const std::string tokens = (scratch / "tokens").string();
  ASSERT_EQ(run({"data", "pack", path, tokens}).code, 0);
  const Outcome packed = run({"data", "pack", path, tokens, "--part", "eval"});
  ASSERT_EQ(packed.code, 0) << packed.error;
  EXPECT_THAT(packed.out, StartsWith("5 tokens in 1 shard, "));
  const DataConfig data = printed_config(packed.out);
  EXPECT_EQ(data.tokens().length(), 4);
  EXPECT_TRUE(data.tokens().random_offset());
  EXPECT_FALSE(data.has_holdout());
  const auto samples = data::open_dataset(data, data::Part::kEvaluation);
  EXPECT_EQ(samples->size(), 1);
  EXPECT_EQ(samples->class_names(), (std::vector<std::string>{" ", "b", "e", "n", "o", "r", "t"}));
  const Outcome resized = run({"data", "pack", path, tokens, "--resize", "2"});
  EXPECT_EQ(resized.code, 2);
  EXPECT_THAT(resized.error, HasSubstr("--resize: cannot be used for text and tokens"));
}

TEST(DataPack, ContinuesAfterASignal) {
  const Scratch scratch;
  const std::string path = config(scratch, "synthetic { count: 5000 }");
  const std::string shards = (scratch / "shards").string();
  const std::vector<std::string> command = {"data", "pack", path, shards, "--shard-size", "256KiB"};
  Program program(command, 0);
  ASSERT_TRUE(wait_for(scratch / "shards" / "train-000001.tar", 60));
  program.signal(SIGINT);
  const Outcome stopped = program.wait();
  EXPECT_EQ(stopped.code, 75) << stopped.error;
  EXPECT_THAT(stopped.out, HasSubstr("stopped; run the same command again to continue"));
  const auto first = std::filesystem::last_write_time(scratch / "shards" / "train-000000.tar");
  const Outcome rest = run(command);
  EXPECT_EQ(rest.code, 0) << rest.error;
  EXPECT_THAT(rest.out, StartsWith("5000 samples in "));
  EXPECT_EQ(std::filesystem::last_write_time(scratch / "shards" / "train-000000.tar"), first);
  EXPECT_EQ(data::open_dataset(printed_config(rest.out), data::Part::kTraining)->size(), 5000);
}

}  // namespace
}  // namespace trireme::testing
