#include <gmock/gmock.h>

#include <initializer_list>
#include <limits>

#include "data/formats/npy_array.h"
#include "tests/data/files.h"

namespace trireme::data {
namespace {

using testing::config_error;
using testing::data_error;
using ::testing::ElementsAre;
using testing::Folder;
using testing::message;
using testing::pixels;
using testing::sample;
using testing::values;

using namespace std::string_literals;

// Returns a .npy file as NumPy writes it.
std::string npy(const std::string& descr, const std::string& shape, std::string_view elements,
                const std::string& order = "False") {
  std::string header =
      "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }";
  header += std::string(127 - 10 - header.size() % 64, ' ') + "\n";
  const auto size = static_cast<uint16_t>(header.size());
  return "\x93NUMPY\1\0"s + static_cast<char>(size & 0xff) + static_cast<char>(size >> 8) + header +
         std::string(elements);
}

template <class T>
std::string bytes_of(std::initializer_list<T> numbers) {
  return {reinterpret_cast<const char*>(std::data(numbers)), numbers.size() * sizeof(T)};
}

std::span<const uint8_t> span_of(std::string_view bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

std::string parse_error(std::string_view bytes) {
  return message<DataError>([&] { parse_npy(span_of(bytes), "x.npy"); });
}

TEST(NpyArrayTest, ReadsFilesOfNumPy) {
  const std::string file = npy("'<f4'", "(2, 3)", pixels(24));
  const NpyArray array = parse_npy(span_of(file), "x.npy");
  EXPECT_EQ(array.dtype, DType::kF32);
  EXPECT_THAT(array.shape, ElementsAre(2, 3));
  EXPECT_EQ(array.elements.size(), 24u);
  EXPECT_TRUE(array.complete());
  EXPECT_EQ(array.describe(), "f32 [2, 3]");
  for (const auto& [descr, dtype] :
       {std::pair{"'|u1'", DType::kU8}, std::pair{"'<i4'", DType::kI32},
        std::pair{"'<i8'", DType::kI64}, std::pair{"\"<f8\"", DType::kF64}}) {
    const std::string one = npy(descr, "(1,)", pixels(size_of(dtype)));
    EXPECT_EQ(parse_npy(span_of(one), "x").dtype, dtype);
  }
}

TEST(NpyArrayTest, ReadsVersions2And3AndScalars) {
  const std::string dictionary = "{'shape':(),'fortran_order':False,'descr':'<i4'}\n";
  for (const char version : {'\2', '\3'}) {
    const std::string file = "\x93NUMPY"s + version + '\0' + static_cast<char>(dictionary.size()) +
                             "\0\0\0"s + dictionary + bytes_of<int32_t>({-7});
    const NpyArray array = parse_npy(span_of(file), "x");
    EXPECT_TRUE(array.shape.empty());
    EXPECT_EQ(to_integer(array.dtype, array.elements.data()), -7);
  }
}

TEST(NpyArrayTest, ReadsEncodedArrays) {
  const std::string elements = pixels(48);
  for (const auto& shape : {std::vector<int64_t>{3, 2}, std::vector<int64_t>{6}}) {
    const std::vector<uint8_t> file = encode_npy(DType::kF64, shape, span_of(elements));
    const NpyArray array = parse_npy(file, "x");
    EXPECT_EQ(array.shape, shape);
    EXPECT_EQ(array.dtype, DType::kF64);
    EXPECT_TRUE(std::ranges::equal(array.elements, span_of(elements)));
    EXPECT_EQ((array.elements.data() - file.data()) % 64, 0);
  }
  EXPECT_SAYS(message<Error>([] { encode_npy(DType::kBF16, {}, {}); }), "bf16 cannot be saved");
}

TEST(NpyArrayTest, UnsupportedArraysAreErrorsWithARemedy) {
  EXPECT_SAYS(parse_error(npy("'>f4'", "(2,)", "12345678")),
              "x.npy: is big-endian ('>f4'); save x.astype('<f4')");
  EXPECT_SAYS(parse_error(npy("'|b1'", "(2,)", "12")), "contains booleans; save x.astype('u1')");
  EXPECT_SAYS(parse_error(npy("'|O'", "(2,)", "12")), "contains Python objects");
  EXPECT_SAYS(parse_error(npy("'<f2'", "(2,)", "1212")), "has elements of type '<f2'");
  EXPECT_SAYS(parse_error(npy("[('a', '<f4')]", "(2,)", "")), "is a structured array");
  EXPECT_SAYS(parse_error(npy("'<f4'", "(1, 2)", "12345678", "True")),
              "is in Fortran order; save numpy.ascontiguousarray(x)");
  EXPECT_SAYS(parse_error("PK\3\4and so on"), "is an archive of arrays (.npz)");
  EXPECT_SAYS(parse_error("\x1f\x8b..."), "is gzip-compressed; decompress it");
  EXPECT_SAYS(parse_error("\x89PNG"), "is not a NumPy array (.npy)");
  EXPECT_SAYS(parse_error(""), "is not a NumPy array (.npy)");
  EXPECT_SAYS(parse_error("\x93NUMPY\4\0\0\0\0\0\0\0"s),
              "has .npy version 4; 1 to 3 are supported");
}

TEST(NpyArrayTest, DamagedHeaders) {
  const std::string whole = npy("'<f4'", "(2,)", "12345678");
  for (size_t length = 6; length < whole.size() - 8; ++length) {
    EXPECT_SAYS(parse_error(whole.substr(0, length)), "is truncated: it ends within its header");
  }
  EXPECT_SAYS(parse_error(npy("'<f4'", "(-2,)", "")), "expected an extent at byte ");
  EXPECT_SAYS(parse_error(npy("'<f4'", "(99999999999999999999,)", "")),
              "expected an extent at byte ");
  EXPECT_SAYS(parse_error(npy("'<f4'", "2", "")), "expected '(' at byte ");
  EXPECT_SAYS(parse_error(npy("'<f4", "(2,)", "")), "invalid NumPy header");
  EXPECT_SAYS(parse_error(npy("'<f4'", "(2,)", "", "Perhaps")), "expected True or False at byte ");
  EXPECT_SAYS(parse_error(npy("'<f4', 'color': 3", "(2,)", "")), "unknown key 'color'");
  const std::string empty = "\x93NUMPY\1\0\2\0{}"s;
  EXPECT_SAYS(parse_error(empty), "descr, fortran_order and shape are required");
  EXPECT_SAYS(parse_error(npy("'<f4'", "(2,)", "123456789")),
              "has 1 bytes after its array, f32 [2]");
}

TEST(NpyArrayTest, ShapesThatExceedMemoryAreTruncated) {
  for (const char* shape : {"(4611686018427387904, 4611686018427387904)",
                            "(1, 4611686018427387904)", "(4611686018427387904, 3)"}) {
    const std::string file = npy("'<f8'", shape, pixels(48));
    const NpyArray array = parse_npy(span_of(file), "x");
    EXPECT_FALSE(array.complete());
    EXPECT_LE(array.complete_rows(), 2);
  }
}

class NpyTest : public ::testing::Test {
 protected:
  NpyTest() {
    folder.write("x.npy", npy("'|u1'", "(4, 2, 3)", pixels(24)));
    folder.write("y.npy", npy("'<i8'", "(4,)", bytes_of<int64_t>({2, 0, 1, 2})));
  }
  std::unique_ptr<Dataset> open(const std::string& more = "") const {
    return open_dataset(config(more), Part::kTraining);
  }
  DataConfig config(const std::string& more = "") const {
    return folder.config("npy { train_inputs: 'x.npy' train_targets: 'y.npy' } " + more);
  }
  Folder folder;
};

TEST_F(NpyTest, ServesImagesAndLabels) {
  const auto dataset = open();
  ASSERT_EQ(dataset->size(), 4);
  EXPECT_EQ(dataset->spec().input,
            (TensorSpec{DType::kU8, Shape{1, 2, 3}, Layout::channels_last()}));
  EXPECT_EQ(dataset->spec().target, (TensorSpec{DType::kI32, Shape{}, {}}));
  EXPECT_EQ(dataset->spec().classes, 3);
  EXPECT_FLOAT_EQ(dataset->spec().scale, 1.0F / 255);
  const std::vector<int32_t> labels{2, 0, 1, 2};
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(sample(*dataset, i).label(), labels[static_cast<size_t>(i)]);
    const std::string expected = pixels(6, static_cast<size_t>(i) * 6);
    EXPECT_EQ(std::memcmp(sample(*dataset, i).input.data(), expected.data(), 6), 0);
  }
  EXPECT_EQ(dataset->where(3), folder.path("x.npy") + ": record 3");
  EXPECT_SAYS(dataset->description(), "NumPy " + folder.path("x.npy"));
  EXPECT_SAYS(dataset->description(), "4 samples of u8 [1, 2, 3] in 3 classes");
}

TEST_F(NpyTest, ChannelsAreTheLastDimension) {
  folder.write("x.npy", npy("'|u1'", "(4, 5, 2, 3)", pixels(120)));
  EXPECT_EQ(open()->spec().input,
            (TensorSpec{DType::kU8, Shape{3, 5, 2}, Layout::channels_last()}));
  folder.write("x.npy", npy("'|u1'", "(4, 3, 5, 8)", pixels(480)));
  EXPECT_SAYS(data_error(config()), folder.path("x.npy") +
                                        ": is u8 [4, 3, 5, 8]; images must have 1 to 4 channels as "
                                        "the last dimension; if they are the first one, save "
                                        "numpy.moveaxis(x, -3, -1)");
}

TEST_F(NpyTest, NumbersAreFeaturesOrChannelsFirst) {
  folder.write("x.npy", npy("'<f4'", "(4, 2)", bytes_of<float>({1, 2, 3, 4, 5, 6, 7, 8})));
  const auto rows = open();
  EXPECT_EQ(rows->spec().input, (TensorSpec{DType::kF32, Shape{2}, {}}));
  EXPECT_THAT(values<float>(sample(*rows, 2).input), ElementsAre(5, 6));
  folder.write("x.npy", npy("'<f8'", "(4, 1, 1, 2)", bytes_of<double>({1, 2, 3, 4, 5, 6, 7, 8.5})));
  const auto images = open();
  EXPECT_EQ(images->spec().input, (TensorSpec{DType::kF32, Shape{1, 1, 2}, {}}));
  EXPECT_THAT(values<float>(sample(*images, 3).input), ElementsAre(7, 8.5F));
  const auto scaled =
      open_dataset(folder.config("npy { train_inputs: 'x.npy' train_targets: 'y.npy' scale: 0.5 }"),
                   Part::kTraining);
  EXPECT_FLOAT_EQ(scaled->spec().scale, 0.5F);
}

TEST_F(NpyTest, Regression) {
  folder.write("y.npy", npy("'<f8'", "(4,)", bytes_of<double>({0.5, 1.5, -2, 3})));
  const auto one = open();
  EXPECT_EQ(one->spec().classes, 0);
  EXPECT_EQ(one->spec().target, (TensorSpec{DType::kF32, Shape{1}, {}}));
  EXPECT_THAT(values<float>(sample(*one, 2).target), ElementsAre(-2));
  folder.write("y.npy", npy("'<f4'", "(4, 2)", bytes_of<float>({1, 2, 3, 4, 5, 6, 7, 8})));
  EXPECT_THAT(values<float>(sample(*open(), 1).target), ElementsAre(3, 4));
}

TEST_F(NpyTest, EvaluationHasTheClassesOfTraining) {
  folder.write("ex.npy", npy("'|u1'", "(2, 2, 3)", pixels(12)));
  folder.write("ey.npy", npy("'|u1'", "(2,)", "\1\0"s));
  const DataConfig both = folder.config(
      "npy { train_inputs: 'x.npy' train_targets: 'y.npy' eval_inputs: 'ex.npy' "
      "eval_targets: 'ey.npy' }");
  const auto evaluation = open_dataset(both, Part::kEvaluation);
  EXPECT_EQ(evaluation->size(), 2);
  EXPECT_EQ(evaluation->spec().classes, 3);
  EXPECT_NO_THROW(check_compatible(*open_dataset(both, Part::kTraining), *evaluation));
  folder.write("ey.npy", npy("'|u1'", "(2,)", "\1\3"s));
  EXPECT_SAYS(data_error(both, Part::kEvaluation),
              folder.path("ey.npy") + ": record 1: label 3 is not in [0, 3)");
}

TEST_F(NpyTest, HoldoutSplits) {
  const DataConfig split = config("holdout: 0.25");
  EXPECT_EQ(open_dataset(split, Part::kTraining)->size(), 3);
  EXPECT_EQ(open_dataset(split, Part::kEvaluation)->size(), 1);
}

TEST_F(NpyTest, BadLabels) {
  folder.write("y.npy", npy("'<i8'", "(4,)", bytes_of<int64_t>({2, -1, 1, int64_t{1} << 40})));
  EXPECT_SAYS(data_error(config()), folder.path("y.npy") + ": record 1: label -1 is negative");
  const auto dataset = open("on_bad_record: SKIP");
  ASSERT_EQ(dataset->size(), 2);
  EXPECT_EQ(sample(*dataset, 1).label(), 1);
  EXPECT_EQ(dataset->where(1), folder.path("x.npy") + ": record 2");
  const std::string expected = pixels(6, 12);
  EXPECT_EQ(std::memcmp(sample(*dataset, 1).input.data(), expected.data(), 6), 0);
  EXPECT_EQ(dataset->bad_records().count, 2);
  EXPECT_SAYS(dataset->bad_records().first[1],
              "record 3: label 1099511627776 implies more classes");
  EXPECT_SAYS(dataset->description(), ", 2 bad record(s) skipped");
}

TEST_F(NpyTest, TargetsMustBeFinite) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  folder.write("y.npy", npy("'<f4'", "(4,)", bytes_of<float>({1, kNan, 2, 3})));
  EXPECT_SAYS(data_error(config()),
              folder.path("y.npy") + ": record 1: target nan is not a finite number");
  const auto dataset = open("on_bad_record: SKIP");
  EXPECT_EQ(dataset->size(), 3);
  EXPECT_THAT(values<float>(sample(*dataset, 1).target), ElementsAre(2));
}

// Otherwise a ReLU would turn NaN into 0 and hide the problem.
TEST_F(NpyTest, InputsMustBeFinite) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  folder.write("x.npy", npy("'<f4'", "(4, 2)", bytes_of<float>({1, 2, 3, 4, 5, kNan, 7, 8})));
  const auto dataset = open();
  EXPECT_THAT(values<float>(sample(*dataset, 3).input), ElementsAre(7, 8));
  EXPECT_SAYS(message<DataError>([&] { sample(*dataset, 2); }),
              folder.path("x.npy") + ": record 2: value 1 is nan, not a finite number");
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  folder.write("x.npy", npy("'<f8'", "(4, 1)", bytes_of<double>({1, 2, -kInfinity, 4})));
  EXPECT_SAYS(message<DataError>([&] { sample(*open(), 2); }), "record 2: value 0 is -inf");
}

TEST_F(NpyTest, Truncated) {
  folder.write("x.npy", npy("'|u1'", "(4, 2, 3)", pixels(17)));
  EXPECT_SAYS(data_error(config()), folder.path("x.npy") +
                                        ": record 2: is truncated: the header declares u8 [4, 2, "
                                        "3], but the file has only 17 bytes");
  const auto dataset = open("on_bad_record: SKIP");
  EXPECT_EQ(dataset->size(), 2);
  EXPECT_EQ(dataset->bad_records().count, 2);
}

TEST_F(NpyTest, TargetsWiderThanTheirFile) {
  folder.write("y.npy", npy("'<f8'", "(4, 300000000000)", bytes_of<double>({1, 2})));
  EXPECT_SAYS(data_error(config()), "but the file has only 16 bytes of it");
  EXPECT_SAYS(data_error(config("on_bad_record: SKIP")), "but the file has only 16 bytes of it");
}

TEST_F(NpyTest, RequiresAsManyTargetsAsInputs) {
  folder.write("y.npy", npy("'|u1'", "(3,)", "\2\0\1"s));
  const std::string expected =
      folder.path("y.npy") + ": has 3 targets, but " + folder.path("x.npy") + " has 4 inputs";
  EXPECT_SAYS(data_error(config()), expected);
  // Which target is missing is unknown: skipping the last input could shift all others.
  EXPECT_SAYS(data_error(config("on_bad_record: SKIP")), expected);
  folder.write("y.npy", npy("'|u1'", "(4,)", ""));
  EXPECT_SAYS(data_error(config("on_bad_record: SKIP")), "has no good records, only 4 bad ones");
}

TEST_F(NpyTest, UnsupportedShapesAndTypes) {
  folder.write("x.npy", npy("'|u1'", "(0, 2, 3)", ""));
  EXPECT_SAYS(data_error(config()), "has no samples: it is u8 [0, 2, 3]");
  folder.write("x.npy", npy("'|u1'", "(4,)", pixels(4)));
  EXPECT_SAYS(data_error(config()), "is u8 [4]; u8 samples must be [H, W]");
  folder.write("x.npy", npy("'<f4'", "(1, 2, 3)", pixels(24)));
  EXPECT_SAYS(data_error(config()), "f32 and f64 samples must be [C, H, W] or [F]");
  folder.write("x.npy", npy("'<i4'", "(4, 2)", pixels(32)));
  EXPECT_SAYS(data_error(config()), "inputs must be u8, f32 or f64");
  folder.write("x.npy", npy("'|u1'", "(4, 2, 3)", pixels(24)));
  folder.write("y.npy", npy("'|u1'", "(4, 1)", "\2\0\1\2"s));
  EXPECT_SAYS(data_error(config()), "is u8 [4, 1]; labels must be [N]");
  folder.write("y.npy", npy("'<f4'", "(4, 1, 1)", pixels(16)));
  EXPECT_SAYS(data_error(config()), "regression targets must be [N] or [N, F]");
}

// The target of a flipped image would have to be flipped, too.
TEST_F(NpyTest, ImagesWithTargetsThatAreNoLabelsCannotBeFlippedOrCropped) {
  folder.write("x.npy", npy("'|u1'", "(4, 2, 3)", pixels(24)));
  folder.write("y.npy", npy("'<f4'", "(4, 2)", bytes_of({1.f, 2.f, 3.f, 4.f, 5.f, 6.f, 7.f, 8.f})));
  const auto with = [&](const std::string& transform) {
    return config("transform { color_jitter {} } transform { " + transform + " }");
  };
  for (const std::string name :
       {"horizontal_flip", "vertical_flip", "rand_augment", "trivial_augment", "center_crop",
        "random_crop", "random_resized_crop", "pad"}) {
    const bool has_size = name.ends_with("crop");
    const std::string fields = has_size ? "size: 2" : name == "pad" ? "padding: 1" : "";
    EXPECT_SAYS(config_error(with(name + " { " + fields + " }")),
                "data.transform[1]." + name +
                    ": moves the objects in an image, but not its target, "
                    "f32 [2], which may depend on their positions: it is only for class labels");
  }
  EXPECT_SAYS(config_error(config("eval_transform { center_crop { size: 2 } } holdout: 0.5"),
                           Part::kEvaluation),
              "data.eval_transform[0].center_crop: moves the objects");
  for (const std::string transform :
       {"resize { size: [4, 4] }", "random_erasing {}", "horizontal_flip { probability: 0 }",
        "rand_augment { operations: 0 }"}) {
    EXPECT_EQ(open_dataset(with(transform), Part::kTraining)->size(), 4) << transform;
  }
  EXPECT_SAYS(config_error(config("mix { cutmix_alpha: 1 }")),
              "only samples with class labels can be mixed");
  folder.write("y.npy", npy("'|u1'", "(4,)", "\2\0\1\2"s));
  EXPECT_EQ(open_dataset(with("horizontal_flip {}"), Part::kTraining)->size(), 4);
}

TEST_F(NpyTest, BadConfiguration) {
  EXPECT_SAYS(config_error(folder.config("npy {}")), "data.npy.train_inputs: is missing");
  EXPECT_SAYS(config_error(config(), Part::kEvaluation),
              "data.npy.eval_inputs: is missing; set it, or set data.holdout");
  const std::string files = "npy { train_inputs: 'x.npy' train_targets: 'y.npy' ";
  EXPECT_SAYS(config_error(folder.config(files + "scale: 0.5 }")),
              "data.npy.scale: is only for f32 and f64 inputs");
  EXPECT_SAYS(config_error(folder.config(files + "classes: 1 }")), "data.npy.classes: 1 is not in");
  EXPECT_SAYS(config_error(folder.config(files + "eval_inputs: 'x.npy' } holdout: 0.5")),
              "cannot be combined with data.holdout");
  folder.write("y.npy", npy("'<f4'", "(4,)", pixels(16)));
  EXPECT_SAYS(config_error(folder.config(files + "classes: 3 }")),
              "data.npy.classes: needs labels of type u8, i32 or i64, but ");
  EXPECT_SAYS(data_error(folder.config("npy { train_inputs: 'z.npy' train_targets: 'y.npy' }")),
              "has no file z.npy");
}

}  // namespace
}  // namespace trireme::data
