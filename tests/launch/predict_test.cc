// End-to-end tests of `trireme predict` and `trireme eval --data` with a network that classifies
// colors.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/build_tree.h"
#include "tests/data/exif.h"
#include "tests/data/images.h"
#include "tests/data/tars.h"
#include "tests/launch/program.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr std::array<const char*, 3> kColors{"red", "green", "blue"};  // by channel

std::string png(data::ImageSize size, int channel, uint32_t seed, int channels = 3) {
  TestImage image = noisy(size, channels, seed);
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    const bool own = channels == 1 || static_cast<int>(i % 3) == channel;
    image.pixels[i] = static_cast<uint8_t>(image.pixels[i] / 3 + (own ? 160 : 0));
  }
  const std::vector<uint8_t> bytes = data::encode_png(image.view());
  return {bytes.begin(), bytes.end()};
}

void write(const fs::path& path, const std::string& bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

// Writes FOLDER/COLOR/N.png.
void write_classes(const fs::path& folder, int each, uint32_t seed) {
  for (int channel = 0; channel < 3; ++channel) {
    for (int i = 0; i < each; ++i) {
      write(folder / kColors[static_cast<size_t>(channel)] / fmt::format("{}.png", i),
            png({12, 12}, channel, seed + static_cast<uint32_t>(10 * i + channel)));
    }
  }
}

std::vector<Json> lines(const std::string& text) {
  std::vector<Json> parsed;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) parsed.push_back(Json::parse(line));
  return parsed;
}

// Trains the network once for all tests, and then moves its images elsewhere.
class PredictTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    scratch_ = new Scratch;
    write_classes(*scratch_ / "data/train", 16, 1);
    write_classes(*scratch_ / "data/val", 5, 1000);
    scratch_->write("run.txtpb", fmt::format(R"(
      model {{ network {{
        name: "colors"
        layer {{ conv2d {{ channels: 8 kernel: 3 bias: false }} }} layer {{ batch_norm {{}} }}
        layer {{ relu {{}} }}
        layer {{ global_pool {{}} }} layer {{ flatten {{}} }} layer {{ dense {{ units: 3 }} }}
        layer {{ softmax_cross_entropy {{}} }}
      }} }}
      data {{
        root: "{}" image_folder {{}}
        normalize {{ mean: [0.4, 0.5, 0.6] std: [0.2, 0.3, 0.4] }}
        eval_transform {{ resize {{ size: 12 }} }} eval_transform {{ center_crop {{ size: 12 }} }}
      }}
      batch {{ global: 12 }} train {{ epochs: 6 device: "cpu" }}
      optimizer {{ adam {{}} }} schedule {{ learning_rate: 0.05 }}
    )",
                                             (*scratch_ / "data").string()));
    trained_ = run(
        {"train", (*scratch_ / "run.txtpb").string(), "--run-dir", (*scratch_ / "run").string()});
    fs::rename(*scratch_ / "data", *scratch_ / "moved");
  }
  static void TearDownTestSuite() { delete scratch_; }
  void SetUp() override { ASSERT_EQ(trained_.code, 0) << trained_.error; }

  static Outcome predict(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"predict", run_folder()});
    return run(arguments);
  }
  static std::vector<Json> predictions(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--format", "jsonl"});
    const Outcome outcome = predict(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.error;
    return lines(outcome.out);
  }
  static std::string run_folder() { return (*scratch_ / "run").string(); }
  static std::string images() { return (*scratch_ / "moved/val").string(); }
  static fs::path file(const std::string& name) { return *scratch_ / name; }

  static Scratch* scratch_;
  static Outcome trained_;
};
Scratch* PredictTest::scratch_ = nullptr;
Outcome PredictTest::trained_;

TEST_F(PredictTest, ClassifiesTheImagesOfAFolderInTheOrderOfTheirNames) {
  const std::vector<Json> all = predictions({images()});
  ASSERT_EQ(all.size(), 15U);
  std::string before;
  for (const Json& one : all) {
    const std::string name = one["name"];
    EXPECT_LT(before, name);
    before = name;
    const std::string folder = fs::path(name).parent_path().filename().string();
    EXPECT_EQ(one["top"][0]["name"], folder) << name;
  }
}

TEST_F(PredictTest, FilesFoldersAndTarsGiveTheSamePredictions) {
  const std::vector<Json> of_folder = predictions({images()});
  std::vector<std::string> files;
  std::string tar;
  for (const Json& one : of_folder) {
    files.push_back(one["name"]);
    const std::string name = fs::relative(files.back(), images()).string();
    tar += member(name, read_file(files.back())) + member(name + ".txt", "no image");
  }
  write(file("all.tar"), tar + tar_end());
  const std::vector<Json> of_tar = predictions({file("all.tar").string()});
  const std::vector<Json> of_files = predictions(files);
  ASSERT_EQ(of_tar.size(), of_folder.size());
  ASSERT_EQ(of_files.size(), of_folder.size());
  for (size_t i = 0; i < of_folder.size(); ++i) {
    EXPECT_EQ(of_files[i], of_folder[i]);
    EXPECT_EQ(of_tar[i]["top"], of_folder[i]["top"]);
    EXPECT_EQ(of_tar[i]["name"],
              file("all.tar").string() + ": " + fs::relative(files[i], images()).string());
  }
}

TEST_F(PredictTest, PrintsAllClassesIfTopExceedsTheirNumber) {
  for (const Json& one : predictions({images(), "--top", "99"})) {
    ASSERT_EQ(one["top"].size(), 3U);
    double sum = 0, before = 1;
    for (const Json& of_class : one["top"]) {
      EXPECT_LE(of_class["probability"], before);
      sum += before = of_class["probability"];
    }
    EXPECT_NEAR(sum, 1, 1e-6);
  }
}

TEST_F(PredictTest, BatchSizeDoesNotChangeTheResults) {
  const std::vector<Json> one = predictions({images(), "--logits", "--batch", "1"});
  const std::vector<Json> four =
      predictions({images(), "--logits", "--batch", "4", "--threads", "1"});
  ASSERT_EQ(one.size(), four.size());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i]["name"], four[i]["name"]);
    for (size_t c = 0; c < 3; ++c) {
      EXPECT_NEAR(one[i]["logits"][c], four[i]["logits"][c].get<double>(), 1e-4);
    }
  }
}

TEST_F(PredictTest, WritesTextAndCsv) {
  const std::string red = images() + "/red/0.png";
  EXPECT_THAT(predict({red, "--top", "1"}).out,
              ::testing::MatchesRegex(".*red/0.png\n *[0-9.]+%  red\n"));
  const Outcome csv = predict({red, "--top", "2", "--format", "csv", "-o", file("a.csv").string()});
  EXPECT_EQ(csv.code, 0) << csv.error;
  EXPECT_EQ(csv.out, "");
  EXPECT_THAT(read_file(file("a.csv")),
              ::testing::StartsWith("name,class_1,probability_1,class_2,probability_2\n" + red +
                                    ",red,0."));
  // Its columns were ranks, which were taken for classes.
  const std::string by_class = predict({red, "--format", "csv"}).out;
  std::istringstream row(by_class.substr(by_class.find('\n') + 1 + red.size()));
  EXPECT_THAT(by_class,
              ::testing::StartsWith("name,probability_blue,probability_green,probability_red\n" +
                                    red + ","));
  std::array<double, 3> probability{};
  char comma = 0;
  for (double& one : probability) row >> comma >> one;
  EXPECT_GT(probability[2], std::max(probability[0], probability[1])) << by_class;
  EXPECT_NEAR(probability[0] + probability[1] + probability[2], 1, 1e-4) << by_class;
  EXPECT_THAT(predict({red, "--logits", "--format", "csv"}).out,
              ::testing::StartsWith("name,blue,green,red\n" + red + ","));
}

TEST_F(PredictTest, NamesBadImagesAndPredictsTheOthers) {
  fs::create_directories(file("mixed"));
  write(file("mixed/a.png"), png({12, 12}, 0, 5));
  write(file("mixed/b.png"), png({12, 12}, 1, 6).substr(0, 60));
  write(file("mixed/c.jpg"), "no image");
  write(file("mixed/d.png"), png({12, 12}, 2, 7));
  const Outcome outcome = predict({file("mixed").string(), "--format", "jsonl"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.error, HasSubstr("mixed/b.png"));
  EXPECT_THAT(outcome.error, HasSubstr("mixed/c.jpg"));
  EXPECT_THAT(outcome.error, HasSubstr("2 input(s) could not be read"));
  const std::vector<Json> all = lines(outcome.out);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0]["top"][0]["name"], "red");
  EXPECT_EQ(all[1]["name"], file("mixed/d.png").string());
  EXPECT_EQ(all[1]["top"][0]["name"], "blue");
  EXPECT_EQ(predict({file("mixed").string(), "--skip-bad"}).code, 0);
}

TEST_F(PredictTest, PredictsTheReadablePartOfADamagedTar) {
  const std::string complete =
      member("a.png", png({12, 12}, 0, 5)) + member("b.png", png({12, 12}, 1, 6));
  write(file("cut.tar"), complete.substr(0, complete.size() - 600));
  const Outcome outcome = predict({file("cut.tar").string(), "--format", "jsonl"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(lines(outcome.out).size(), 1U);
  EXPECT_THAT(outcome.error, HasSubstr("cut.tar"));
  write(file("cut.tar"), complete);  // as if it had been cut between two members
  const Outcome between = predict({file("cut.tar").string(), "--format", "jsonl"});
  EXPECT_EQ(between.code, 3);
  EXPECT_EQ(lines(between.out).size(), 2U);
  EXPECT_THAT(between.error, HasSubstr("without an end-of-archive marker"));
  const std::string end(1024, '\0');
  write(file("cut.tar"), complete + end + complete + end);
  const Outcome joined = predict({file("cut.tar").string(), "--format", "jsonl"});
  EXPECT_EQ(joined.code, 3);
  EXPECT_EQ(lines(joined.out).size(), 2U);
  EXPECT_THAT(joined.error, HasSubstr("is it a concatenation of several archives?"));
  write(file("cut.tar"), complete.substr(0, 600));
  EXPECT_THAT(predict({file("cut.tar").string()}).error, HasSubstr("is truncated within a.png"));
}

TEST_F(PredictTest, FollowsLinksToFolders) {
  write(file("linked/here/a.png"), png({12, 12}, 0, 5));
  write(file("elsewhere/b.png"), png({12, 12}, 1, 6));
  fs::create_directory_symlink(file("elsewhere"), file("linked/there"));
  const std::vector<Json> all = predictions({file("linked").string()});
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[1]["name"], file("linked/there/b.png").string());
  fs::create_directory_symlink(file("linked"), file("linked/here/up"));
  const Outcome cyclic = predict({file("linked").string()});
  EXPECT_EQ(cyclic.code, 3);
  EXPECT_THAT(cyclic.error, HasSubstr("folders are nested more than 32 deep; is there a link"));
}

TEST_F(PredictTest, NamesImagesInATarThatAreLinks) {
  write(file("links.tar"), member("a.png", png({12, 12}, 0, 5)) + member("b.png", "", '2') +
                               member("folder.png", "", '5') + tar_end());
  const Outcome outcome = predict({file("links.tar").string(), "--format", "jsonl"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(lines(outcome.out).size(), 1U);
  EXPECT_THAT(outcome.error, HasSubstr("links.tar: b.png: is a link or a sparse file"));
  EXPECT_THAT(outcome.error, HasSubstr("1 input(s) could not be read"));
}

// A photograph is stored as the camera's sensor saw it.
TEST_F(PredictTest, TurnsPhotographsAsTheirExifOrientationSays) {
  TestImage upright = noisy({12, 12}, 3), stored = upright;
  for (int y = 0; y < 12; ++y) {
    for (int x = 0; x < 12; ++x) {
      for (int c = 0; c < 3; ++c) stored.at(11 - x, y, c) = upright.at(y, x, c);
    }
  }
  const auto write_png = [&](const char* name, const std::vector<uint8_t>& bytes) {
    write(file(name), {bytes.begin(), bytes.end()});
    return predictions({file(name).string()})[0]["top"];
  };
  const Json expected = write_png("upright.png", data::encode_png(upright.view()));
  const auto turned = data::encode_png(stored.view());
  EXPECT_EQ(write_png("turned.png", with_orientation(turned, 6)), expected);
  EXPECT_NE(write_png("stored.png", turned), expected);
}

TEST_F(PredictTest, AcceptsImagesOfAnySizeAndColor) {
  write(file("large.png"), png({40, 70}, 1, 8));
  write(file("gray.png"), png({9, 31}, 0, 9, 1));
  const std::vector<Json> all =
      predictions({file("large.png").string(), file("gray.png").string()});
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0]["top"][0]["name"], "green");
}

TEST_F(PredictTest, ReportsInvalidInputs) {
  const auto refusal = [](const std::vector<std::string>& arguments) {
    const Outcome outcome = predict(arguments);
    return fmt::format("{} {}", outcome.code, outcome.error);
  };
  EXPECT_THAT(refusal({"/nowhere.png"}),
              ::testing::MatchesRegex("3 trireme: /nowhere.png: does not exist\n"));
  fs::create_directories(file("empty"));
  EXPECT_THAT(refusal({file("empty").string()}), HasSubstr("has no image"));
  scratch_->write("rows.csv", "1,2,3\n");
  EXPECT_THAT(refusal({file("rows.csv").string()}),
              HasSubstr("has 3 columns, but the network's input is u8"));
  EXPECT_THAT(refusal({file("rows.csv").string(), images()}), HasSubstr("cannot be mixed"));
  EXPECT_THAT(refusal({images(), "-o", "/nowhere/x"}),
              HasSubstr("/nowhere/x: cannot be created: No such"));
  EXPECT_EQ(run({"predict", run_folder(), images()}, 2).code, 2);
}

TEST_F(PredictTest, EvaluatesOtherFoldersAndShards) {
  const auto accuracy = [](const std::string& data) {
    const Outcome outcome = run({"eval", run_folder(), "--data", data, "--json"});
    EXPECT_EQ(outcome.code, 0) << outcome.error;
    return Json::parse(outcome.out);
  };
  // The run's own format at another path; a folder of classes; a folder with only one of the
  // classes, which is identified by its name.
  EXPECT_EQ(accuracy(file("moved").string())["samples"], 15);
  EXPECT_EQ(accuracy(images())["eval_accuracy"], 1);
  write(file("one/red/x.png"), png({20, 30}, 0, 77));
  EXPECT_EQ(accuracy(file("one").string())["eval_accuracy"], 1);
  write(file("other/purple/x.png"), png({12, 12}, 0, 77));
  const Outcome unknown = run({"eval", run_folder(), "--data", file("other").string()});
  EXPECT_EQ(unknown.code, 3);
  EXPECT_THAT(unknown.error, HasSubstr("class 'purple' is not one the network was trained on"));
  std::string tar;
  for (int i = 0; i < 6; ++i) {  // classes are numbered by name: blue, green, red
    tar +=
        sample_members(fmt::format("{}", i), png({12, 12}, i % 3, 50), std::to_string(2 - i % 3));
  }
  fs::create_directories(file("shards"));
  write(file("shards/a.tar"), tar + tar_end());
  for (const std::string data : {"shards", "shards/a.tar", "shards/*.tar"}) {
    const Json json = accuracy(file(data).string());
    EXPECT_EQ(json["samples"], 6) << data;
    EXPECT_EQ(json["eval_accuracy"], 1) << data;
  }
  EXPECT_EQ(run({"eval", run_folder(), "--data", "/nowhere"}).code, 2);
}

Json without_pace(Json json) {
  json.erase("loss");  // its order of summation depends on the ranks
  return json;
}

TEST_F(PredictTest, RunsWithoutAGoodImageFail) {
  for (const char* color : kColors) {
    for (int i = 0; i < 4; ++i) {
      write(file(fmt::format("good/train/{}/{}.png", color, i)), png({12, 12}, 0, 1));
      write(file(fmt::format("bad/{}/{}.png", color, i)), "not a PNG");
    }
  }
  fs::create_directories(file("mixed"));
  fs::create_symlink(file("bad"), file("mixed/train"));
  fs::create_symlink(file("good/train"), file("mixed/val"));
  fs::create_symlink(file("bad"), file("good/val"));
  const std::vector<std::string> skip = {"--set", "data.on_bad_record=SKIP"};
  // Of images that need no transform, the first one determines the size.
  std::string config = read_file(file("run.txtpb"));
  config.insert(config.find("eval_transform"),
                "transform { resize { size: 12 } } transform { center_crop { size: 12 } } ");
  scratch_->write("skip.txtpb", config);
  for (int ranks : {0, 2}) {
    for (const char* root : {"mixed", "good"}) {
      std::vector<std::string> words = {"train",     file("skip.txtpb").string(),
                                        "--run-dir", file("bad-run").string(),
                                        "--set",     "data.root=" + file(root).string()};
      words.insert(words.end(), skip.begin(), skip.end());
      const Outcome outcome = run(words, ranks);
      EXPECT_EQ(outcome.code, 3) << outcome.out << outcome.error;
      EXPECT_THAT(outcome.error, HasSubstr("has no good samples"));
      fs::remove_all(file("bad-run"));
    }
  }
  const Outcome eval =
      run({"eval", run_folder(), "--data", file("bad").string(), skip[0], skip[1]});
  EXPECT_EQ(eval.code, 3) << eval.out;
  EXPECT_THAT(eval.error, HasSubstr("has no good samples, only 12 bad ones; the first: rank 0: "));
}

TEST_F(PredictTest, NeverOverwritesAnInput) {
  const std::string image = images() + "/red/0.png";
  const std::string before = read_file(image);
  const Outcome outcome = predict({images(), image, "-o", image});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.error, HasSubstr("is also an input, which would be lost"));
  EXPECT_EQ(read_file(image), before);
  const Outcome within = predict({images(), "-o", image});
  EXPECT_EQ(within.code, 2);
  EXPECT_THAT(within.error, HasSubstr("red/0.png is also an input, which would be lost"));
  EXPECT_EQ(read_file(image), before);
  fs::create_hard_link(image, file("hard.png"));
  EXPECT_EQ(predict({images(), "-o", file("hard.png").string()}).code, 2);
  EXPECT_EQ(read_file(image), before);
}

// eval, report, export and predict replaced files of the run that they read, or its data.
TEST_F(PredictTest, NoCommandOverwritesAFileOfTheRun) {
  const fs::path run_of = run_folder();
  fs::create_symlink(run_of / "config.txtpb", file("link"));
  fs::create_hard_link(run_of / "metrics.jsonl", file("hard"));
  const std::string weights = (run_of / "checkpoints/step-00000024/model.safetensors").string();
  const std::string red = images() + "/red/0.png";
  ASSERT_TRUE(fs::exists(weights));
  fs::create_hard_link(weights, file("hard.safetensors"));
  for (const std::string& out :
       {(run_of / "config.txtpb").string(), (run_of / "samples.json").string(),
        (run_of / "checkpoints/latest").string(), weights, file("link").string(),
        file("hard").string()}) {
    const std::string before = read_file(out);
    for (const Outcome& outcome :
         {run({"eval", run_folder(), "--data", images(), "-o", out}),
          run({"report", run_folder(), "-o", out}), predict({red, "-o", out})}) {
      EXPECT_EQ(outcome.code, 2) << out << outcome.error;
      EXPECT_THAT(outcome.error, HasSubstr("is also an input, which would be lost"));
    }
    EXPECT_EQ(read_file(out), before);
  }
  const std::string image = read_file(red);
  EXPECT_EQ(run({"eval", run_folder(), "--data", images(), "-o", red}).code, 2);
  EXPECT_EQ(read_file(red), image);
  for (const std::string& out : {weights, file("hard.safetensors").string()}) {
    EXPECT_EQ(run({"export", run_folder(), out}).code, 2);
  }
  // Earlier results are replaced.
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(
        run({"eval", run_folder(), "--data", images(), "-o", (run_of / "evaluation.json").string()})
            .code,
        0);
    EXPECT_EQ(run({"report", run_folder()}).code, 0);
    EXPECT_EQ(predict({red, "-o", (run_of / "red.txt").string()}).code, 0);
  }
}

TEST_F(PredictTest, NoCommandOverwritesTheDataOfTheRun) {
  fs::create_directories(file("data/train/red"));
  const std::string image = file("data/train/red/new.png").string();
  write(image, png({12, 12}, 0, 5));
  const std::string before = read_file(image);
  for (const Outcome& outcome : {predict({images() + "/red/0.png", "-o", image}),
                                 run({"report", run_folder(), "-o", image})}) {
    EXPECT_EQ(outcome.code, 2) << outcome.error;
    EXPECT_THAT(outcome.error, HasSubstr("is also an input, which would be lost"));
  }
  EXPECT_EQ(read_file(image), before);
  fs::remove_all(file("data"));
}

TEST_F(PredictTest, ClassesOfAnExportedOnnxFileAreThoseOfTheData) {
  const std::string onnx = file("colors.onnx").string();
  ASSERT_EQ(run({"export", run_folder(), onnx}).code, 0);
  for (const std::string part : {"renamed/train", "renamed/val"}) {
    write_classes(file(part), 4, 7);
    fs::rename(file(part) / "red", file(part) / "violet");
  }
  const Outcome outcome =
      run({"train", file("run.txtpb").string(), "--run-dir", file("from-onnx").string(),
           "--init-from", onnx, "--set", "data.root=" + file("renamed").string()});
  EXPECT_EQ(outcome.code, 2) << outcome.out << outcome.error;
  EXPECT_THAT(outcome.error, HasSubstr("violet"));
}

TEST_F(PredictTest, WritesToStandardOutputPipesAndLinks) {
  const std::string red = images() + "/red/0.png";
  const std::string text = predict({red}).out;
  EXPECT_EQ(predict({red, "-o", "-"}).out, text);
  EXPECT_EQ(predict({red, "-o", "/dev/stdout"}).out, text);
  EXPECT_FALSE(fs::exists("-"));
  ASSERT_EQ(mkfifo(file("pipe").c_str(), 0600), 0);
  Program program({"predict", run_folder(), red, "-o", file("pipe").string()}, 0);
  EXPECT_EQ(read_file(file("pipe")), text);
  EXPECT_EQ(program.wait().code, 0);
  EXPECT_TRUE(fs::is_fifo(file("pipe")));
  scratch_->write("target.txt", "old");
  fs::create_symlink("target.txt", file("to-target"));
  EXPECT_EQ(predict({red, "-o", file("to-target").string()}).code, 0);
  EXPECT_EQ(read_file(file("target.txt")), text);
  EXPECT_TRUE(fs::is_symlink(file("to-target")));
}

// A failure left an empty file, and two processes a mixture.
TEST_F(PredictTest, TheOutputIsReplacedWhenItIsComplete) {
  const std::string out = scratch_->write("kept.csv", "old");
  EXPECT_EQ(predict({"/nowhere.png", "-o", out}).code, 3);
  EXPECT_EQ(read_file(out), "old");
  std::vector<std::string> alone;
  for (const char* format : {"csv", "jsonl"}) {
    alone.push_back(predict({images(), "--format", format}).out);
  }
  {
    std::vector<std::unique_ptr<Program>> programs;
    for (const char* format : {"csv", "jsonl"}) {
      const std::vector<std::string> words = {"predict", run_folder(), images(), "--format",
                                              format,    "-o",         out};
      programs.push_back(std::make_unique<Program>(words, 0));
    }
    for (const auto& program : programs) EXPECT_EQ(program->wait().code, 0);
  }
  EXPECT_THAT(alone, ::testing::Contains(read_file(out)));
}

// With standard output closed, they exited with 0 having printed nothing.
TEST_F(PredictTest, OutputThatCannotBePrintedIsAFailure) {
  const std::string program = (build_tree() / "bin" / "trireme").string();
  const std::string trained = run_folder();
  const std::string red = images() + "/red/0.png";
  for (const std::string& command :
       {"predict " + trained + " " + red, "eval " + trained + " --data " + images(),
        "config show " + trained, "report " + trained, std::string("--version"),
        std::string("help predict")}) {
    for (const char* output : {">&-", ">/dev/full"}) {
      const std::string all =
          program + " " + command + " " + output + " 2>" + file("error").string();
      const int status = std::system(all.c_str());
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << all << status;
      EXPECT_THAT(read_file(file("error")), HasSubstr("trireme: ")) << all;
    }
  }
}

TEST_F(PredictTest, PathsOfTheCommandLineCannotControlTheTerminal) {
  const std::string hostile = file("a\x1b[31mb").string();
  fs::copy(run_folder(), hostile, fs::copy_options::recursive);
  for (const Outcome& outcome :
       {run({"report", hostile}), run({"export", run_folder(), hostile + ".onnx"}),
        run({"data", "tokenizer", hostile, "-o", hostile}),
        run({"data", "pack", images(), hostile + "/out"}),
        run({"config", "diff", file("run.txtpb").string(), hostile}),
        run({"runs", hostile + "/out"}),
        run({"train", file("run.txtpb").string(), "--run-dir", hostile, "--set",
             "data.root=" + (file("moved")).string()})}) {
    EXPECT_EQ((outcome.out + outcome.error).find('\x1b'), std::string::npos)
        << outcome.out << outcome.error;
    EXPECT_THAT(outcome.out + outcome.error, HasSubstr("a\\x1b[31mb"));
  }
}

TEST_F(PredictTest, SkipsALinkInAFolderThatCannotBeFollowed) {
  std::filesystem::create_directory(file("links"));
  write(file("links/a.png"), png({12, 12}, 0, 5));
  std::filesystem::create_symlink("b.png", file("links/b.png"));
  const Outcome outcome = predict({file("links").string(), "--format", "jsonl"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(lines(outcome.out).size(), 1U);
  EXPECT_THAT(outcome.error, HasSubstr("links/b.png"));
}

TEST_F(PredictTest, RefusesRanksThatEvaluateDifferentImages) {
  write_classes(file("others"), 5, 2000);
  const auto eval = [&](const std::string& data) {
    return Program::Group{{"eval", run_folder(), "--data", data}};
  };
  const Outcome outcome = Program({eval(images()), eval(file("others").string())}).wait();
  EXPECT_EQ(outcome.code, 3) << outcome.out << outcome.error;
  EXPECT_THAT(outcome.error, HasSubstr("rank 1 differs from rank 0: "));
  EXPECT_THAT(outcome.error, HasSubstr(" of evaluation samples is "));
}

TEST_F(PredictTest, EvaluationDoesNotDependOnTheNumberOfRanks) {
  const Json trained = Json::parse(read_file(file("run/evaluation.json")));
  EXPECT_THAT(trained["classes"], ElementsAre("blue", "green", "red"));
  EXPECT_EQ(trained["samples"], 15);
  // Wrong labels cause mistakes: red images in the folder of blue ones.
  for (int i = 0; i < 30; ++i) {
    write(file(fmt::format("wrong/blue/{}.png", i)), png({12, 12}, 0, 300 + uint32_t(i)));
    write(file(fmt::format("wrong/green/{}.png", i)), png({12, 12}, 1, 400 + uint32_t(i)));
  }
  Json alone;
  for (int ranks = 1; ranks <= 3; ++ranks) {
    const std::string out = file("evaluation.json").string();
    const Outcome outcome = run({"eval", run_folder(), "--data", file("wrong").string(), "-o", out,
                                 "--set", "train.device=cpu"},
                                ranks);
    ASSERT_EQ(outcome.code, 0) << outcome.error;
    const Json json = without_pace(Json::parse(read_file(out)));
    if (ranks == 1) alone = json;
    EXPECT_EQ(json["confusion"], alone["confusion"]) << ranks;
    EXPECT_EQ(json["per_class"], alone["per_class"]) << ranks;
    EXPECT_EQ(json["macro_f1"], alone["macro_f1"]) << ranks;
    ASSERT_EQ(json["mistakes"].size(), 24U);
    for (size_t i = 0; i < 24; ++i) {
      const Json& mistake = json["mistakes"][i];
      EXPECT_NEAR(mistake["probability"], alone["mistakes"][i]["probability"].get<double>(), 1e-4);
      EXPECT_EQ(mistake["label"], 0);
      EXPECT_THAT(mistake["where"].get<std::string>(), HasSubstr("wrong/blue/"));
      EXPECT_THAT(mistake["png"].get<std::string>(), ::testing::StartsWith("iVBORw0KGgo"));
    }
    double trace = 0;
    for (size_t c = 0; c < 3; ++c) trace += json["confusion"][c][c].get<double>();
    EXPECT_EQ(trace, std::round(json["accuracy"].get<double>() * 60));
  }
  const Outcome table = run({"eval", run_folder(), "--data", file("wrong").string(), "--details"});
  // All 30 images labeled blue are red: one class is always found, one never, and one has no
  // samples.
  const Json blue = alone["per_class"][0], green = alone["per_class"][1],
             red = alone["per_class"][2];
  EXPECT_EQ(blue["support"], 30);
  EXPECT_EQ(blue["predicted"], 0);
  EXPECT_EQ(blue["precision"], 0);
  EXPECT_EQ(green["true_positives"], 30);
  EXPECT_EQ(green["f1"], 1);
  EXPECT_EQ(red["support"], 0);
  EXPECT_EQ(red["recall"], 0);
  EXPECT_NEAR(alone["macro_precision"], 1.0 / 3, 1e-12);
  EXPECT_FALSE(alone.contains("top5")) << "of three classes";
  EXPECT_THAT(table.out, HasSubstr("macro recall 33.33%, macro F1 33.33%"));
  EXPECT_THAT(table.out, HasSubstr("support  most confused with"));
  EXPECT_THAT(table.out, ::testing::ContainsRegex("green +100.00% +100.00% +100.00% +30"));
  EXPECT_THAT(table.out, ::testing::ContainsRegex("macro average +33.33% +33.33% +33.33% +60"));
  EXPECT_THAT(table.out, HasSubstr("red (30)"));
}

TEST(PredictRows, PredictsRowsOfATable) {
  const Scratch scratch;
  std::string csv;
  for (int i = 0; i < 64; ++i) csv += fmt::format("{},{},{}\n", i % 8, i / 8, 2 * (i % 8) - i / 8);
  scratch.write("t.csv", csv);
  const std::string config = scratch.write("run.txtpb", fmt::format(R"(
    model {{ network {{ name: "line" layer {{ dense {{ units: 1 }} }}
                        layer {{ mean_squared_error {{}} }} }} }}
    data {{ root: "{}" csv {{ train_file: "t.csv" regression: true }} holdout: 0.2 }}
    batch {{ global: 16 }} train {{ epochs: 250 eval_every_epochs: 0 device: "cpu" }}
    checkpoint {{ every_epochs: 0 }}
    optimizer {{ adam {{}} }} schedule {{ learning_rate: 0.05 }}
  )",
                                                                    scratch.path().string()));
  const std::string folder = (scratch / "run").string();
  ASSERT_EQ(run({"train", config, "--run-dir", folder}).code, 0);
  scratch.write("features.csv", "x,y\n3,1\n7,7\n");
  const Outcome outcome =
      run({"predict", folder, (scratch / "features.csv").string(), "--format", "jsonl"});
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  const std::vector<Json> rows = lines(outcome.out);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0]["name"], (scratch / "features.csv").string() + ": record 0");
  EXPECT_NEAR(rows[0]["values"][0], 5, 0.5);
  EXPECT_NEAR(rows[1]["values"][0], 7, 0.5);
  // A table that includes the target column.
  const Outcome all = run({"predict", folder, (scratch / "t.csv").string(), "--format", "csv"});
  EXPECT_EQ(std::ranges::count(all.out, '\n'), 65);
  EXPECT_THAT(all.out, ::testing::StartsWith("name,value_0\n"));

  const Json evaluation = Json::parse(read_file(scratch / "run/evaluation.json"));
  const double mae = evaluation["mae"], rmse = evaluation["rmse"], r2 = evaluation["r2"];
  EXPECT_GT(mae, 0);
  EXPECT_GE(rmse, mae);
  EXPECT_NEAR(rmse * rmse, evaluation["loss"], 1e-5 * rmse * rmse);
  EXPECT_GT(r2, 0.9);
  EXPECT_LE(r2, 1);
  EXPECT_EQ(evaluation["outputs"], Json({{{"mae", mae}, {"rmse", rmse}, {"r2", r2}}}));
  EXPECT_FALSE(evaluation.contains("accuracy") || evaluation.contains("classes"));
  Json alone;
  for (int ranks = 1; ranks <= 4; ++ranks) {  // one row at a time, so that predictions are the same
    const Outcome again = run({"eval", folder, "--json", "--set", "batch.micro=1"}, ranks);
    ASSERT_EQ(again.code, 0) << again.error;
    const Json json = Json::parse(again.out);
    if (ranks == 1) alone = json;
    for (const char* key : {"eval_mae", "eval_rmse", "eval_r2"}) {
      EXPECT_NEAR(json[key], alone[key].get<double>(), 1e-12 * alone[key].get<double>()) << ranks;
    }
  }
}

TEST(PredictRows, ColumnsAreFoundByName) {
  const Scratch scratch;
  std::string csv = "x,y,z,sum\n";
  for (int i = 0; i < 64; ++i) {
    csv += fmt::format("{},{},{},{}\n", i % 4, i / 4 % 4, i / 16,
                       10 * (i % 4) + 3 * (i / 4 % 4) - i / 16);
  }
  scratch.write("t.csv", csv);
  const std::string config = scratch.write("run.txtpb", fmt::format(R"(
    model {{ network {{ name: "plane" layer {{ dense {{ units: 1 }} }}
                        layer {{ mean_squared_error {{}} }} }} }}
    data {{ root: "{}" csv {{ train_file: "t.csv" regression: true }} holdout: 0.2 }}
    batch {{ global: 16 }} train {{ epochs: 400 eval_every_epochs: 0 device: "cpu" }}
    checkpoint {{ every_epochs: 0 }}
    optimizer {{ adam {{}} }} schedule {{ learning_rate: 0.05 }}
  )",
                                                                    scratch.path().string()));
  const std::string folder = (scratch / "run").string();
  ASSERT_EQ(run({"train", config, "--run-dir", folder}).code, 0);
  fs::rename(scratch / "t.csv", scratch / "gone.csv");  // the run has saved its columns
  const auto predicted = [&](const std::string& table) {
    const std::string file = scratch.write("new.csv", table);
    const Outcome outcome = run({"predict", folder, file, "--format", "jsonl"});
    EXPECT_EQ(outcome.code, 0) << outcome.error;
    return lines(outcome.out).at(0)["values"][0].get<double>();
  };
  const auto refused = [&](const std::string& table) {
    const std::string file = scratch.write("new.csv", table);
    const Outcome outcome = run({"predict", folder, file});
    EXPECT_EQ(outcome.code, 3) << outcome.out;
    EXPECT_THAT(outcome.error, HasSubstr(file));
    return outcome.error;
  };
  const double wanted = predicted("x,y,z\n3,1,2\n");
  EXPECT_NEAR(wanted, 31, 1);
  EXPECT_EQ(predicted("z,x,y\n2,3,1\n"), wanted);
  EXPECT_EQ(predicted("sum,z,x,y\n0,2,3,1\n"), wanted);
  // Without a header: the features, or all columns, in the order of the training table.
  EXPECT_EQ(predicted("3,1,2\n"), wanted);
  EXPECT_EQ(predicted("3,1,2,0\n"), wanted);
  EXPECT_THAT(refused("foo,bar,baz\n3,1,2\n"), HasSubstr("no column 'x'; no column 'y'"));
  EXPECT_THAT(refused("x,y\n3,1\n"), HasSubstr("no column 'z'"));
  EXPECT_THAT(refused("x,y,z,id\n3,1,2,7\n"), HasSubstr("an unknown column 'id'"));
  EXPECT_THAT(refused("x,y,x\n3,1,2\n"), HasSubstr("two columns named 'x'"));
  EXPECT_THAT(refused("3,1\n"), HasSubstr("has 2 columns; the training table has 4, 3 of them"));

  const std::string file = scratch.write("new.csv", "x,y,z\n3,1,2\n");
  EXPECT_THAT(run({"predict", folder, file, "--format", "csv"}).out,
              ::testing::StartsWith("name,sum\n"));
  const Outcome details =
      run({"eval", folder, "--data", (scratch / "gone.csv").string(), "--details"});
  EXPECT_THAT(details.out,
              ::testing::ContainsRegex("loss [0-9.]+, MAE [0-9.]+, RMSE [0-9.]+, R2 0"));
  EXPECT_THAT(details.out, ::testing::ContainsRegex("output +MAE +RMSE +R2\nsum +[0-9.]+"));
  // Constant targets have no R2.
  const std::string same = scratch.write("same.csv", "x,y,z,sum\n3,1,2,31\n2,1,2,31\n");
  const Outcome constant = run({"eval", folder, "--data", same, "--json"});
  EXPECT_FALSE(Json::parse(constant.out).contains("eval_r2")) << constant.out;
  EXPECT_TRUE(Json::parse(constant.out).contains("eval_mae"));

  const std::string onnx = (scratch / "plane.onnx").string();
  const Outcome exported = run({"export", folder, onnx});
  EXPECT_THAT(exported.out,
              HasSubstr("input: f32 [N, 3]: numbers as in the data, columns x, y, z"));
  EXPECT_THAT(read_file(onnx), HasSubstr(R"(["x","y","z"])"));

  const auto loss = [&](const std::string& table) {
    const std::string other = scratch.write("other.csv", table);
    const Outcome outcome = run({"eval", folder, "--data", other, "--json"});
    EXPECT_EQ(outcome.code, 0) << outcome.error;
    return Json::parse(outcome.out)["eval_loss"].get<double>();
  };
  EXPECT_EQ(loss("sum,z,y,x\n31,2,1,3\n"), loss("x,y,z,sum\n3,1,2,31\n"));
  EXPECT_LT(loss("sum,z,y,x\n31,2,1,3\n"), 1);
}

}  // namespace
}  // namespace trireme::testing
