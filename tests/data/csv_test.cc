#include <gmock/gmock.h>

#include "tests/data/files.h"

namespace trireme::data {
namespace {

using testing::config_error;
using testing::data_error;
using ::testing::ElementsAre;
using testing::Folder;
using testing::gzip;
using testing::sample;
using testing::values;

class CsvTest : public ::testing::Test {
 protected:
  std::unique_ptr<Dataset> open(const std::string& text, const std::string& fields = "",
                                Part part = Part::kTraining) {
    folder.write("x.csv", text);
    return open_dataset(folder.config("csv { train_file: 'x.csv' " + fields + "}"), part);
  }
  std::string error(const std::string& text, const std::string& fields = "",
                    Part part = Part::kTraining) {
    folder.write("x.csv", text);
    return data_error(folder.config("csv { train_file: 'x.csv' " + fields + "}"), part);
  }
  std::string refused(const std::string& fields, const std::string& text = "1,2,0\n3,4,1\n") {
    folder.write("x.csv", text);
    return config_error(folder.config("csv { " + fields + "}"));
  }
  std::vector<float> input(const Dataset& dataset, int64_t i) {
    return values<float>(sample(dataset, i).input);
  }
  Folder folder;
};

TEST_F(CsvTest, LabelComesLast) {
  const auto dataset = open("1,-2.5,0\n+3,4e2,2\n.5,6,1");
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_EQ(dataset->spec().input, (TensorSpec{DType::kF32, Shape{2}, {}}));
  EXPECT_EQ(dataset->spec().target, (TensorSpec{DType::kI32, Shape{}, {}}));
  EXPECT_EQ(dataset->spec().classes, 3);
  EXPECT_EQ(dataset->spec().scale, 1);
  EXPECT_THAT(input(*dataset, 0), ElementsAre(1, -2.5F));
  EXPECT_THAT(input(*dataset, 1), ElementsAre(3, 400));
  EXPECT_EQ(sample(*dataset, 1).label(), 2);
  EXPECT_SAYS(dataset->description(),
              "CSV " + folder.path("x.csv") + ": 3 samples of f32 [2] in 3 classes");
}

TEST_F(CsvTest, LabelByIndexAndByName) {
  EXPECT_THAT(input(*open("7,0,9\n8,1,9\n", "label: '1' "), 0), ElementsAre(7, 9));
  const auto named = open("width,kind,height\n7,0,9\n8,1,9\n", "label: 'kind' ");
  EXPECT_THAT(input(*named, 1), ElementsAre(8, 9));
  EXPECT_EQ(sample(*named, 1).label(), 1);
}

TEST_F(CsvTest, DetectsAHeader) {
  EXPECT_EQ(open("a,b,c\n1,2,0\n")->size(), 1);
  EXPECT_EQ(open("1,2,0\n1,2,1\n")->size(), 2);
  EXPECT_EQ(open("1,2,0\n1,2,1\n", "header: PRESENT ")->size(), 1);
  EXPECT_SAYS(error("0,1,2\n1,2,0\n"), "line 1: is 0, 1, 2, ..., as pandas names columns");
  EXPECT_EQ(open("0,1,2\n1,2,1\n", "header: PRESENT ")->size(), 1);
  EXPECT_EQ(open("0,1,2\n1,2,1\n1,2,0\n", "header: ABSENT ")->size(), 3);
  EXPECT_SAYS(error("1,+-2,0\n1,2,1\n"), "line 1, column 2: '+-2' is not a number");
  // A damaged first row is not mistaken for a header.
  EXPECT_SAYS(error("1,x,0\n1,2,1\n"),
              ": line 1, column 2: 'x' is not a number; this line contains numbers");
  EXPECT_SAYS(error("a,b,c\n1,2,0\n", "header: ABSENT "), "line 1, column 1: 'a' is not a number");
}

TEST_F(CsvTest, TheLastColumnIsNotTheLabelIfAnotherOneIsNamedSo) {
  const std::string table = "Label,p0,p1\n0,7,9\n1,8,9\n";
  EXPECT_SAYS(refused("train_file: 'x.csv'", table),
              "data.csv.label: is not set, so that the last column of");
  EXPECT_THAT(input(*open(table, "label: 'Label' "), 0), ElementsAre(7, 9));
  EXPECT_THAT(input(*open(table, "label: 'p1' regression: true "), 0), ElementsAre(0, 7));
  EXPECT_EQ(open("p0,p1,label\n7,9,0\n8,9,1\n")->size(), 2);
  EXPECT_SAYS(open(table, "label: 'Label' ")->description(), "x.csv (label 'Label'): 2 samples");
}

TEST_F(CsvTest, ColumnsOfAHeaderHaveNames) {
  EXPECT_SAYS(error(",a,b\n0,7,1\n1,8,0\n"),
              "line 1, column 1: has no name; if it is the index of pandas, remove it");
  EXPECT_SAYS(error(",0,1\n0,7,1\n1,8,0\n"),
              "line 1, column 1: is empty; expected a number; this line contains numbers");
}

TEST_F(CsvTest, FilesThatAreNotOnADisk) {
  std::filesystem::create_symlink("/proc/self/status", folder.path("x.csv"));
  EXPECT_SAYS(data_error(folder.config("csv { train_file: 'x.csv' }")),
              "x.csv: has more than its size, 0 bytes");
}

TEST_F(CsvTest, AcceptsBlanksQuotesLineEndsAndByteOrderMark) {
  const auto dataset =
      open("\xEF\xBB\xBF\"a, b\",\"c\",d\r\n 1 , 2 ,0\r\n\r\n\"3\", \"4\" ,1\r\n\n");
  ASSERT_EQ(dataset->size(), 2);
  EXPECT_THAT(input(*dataset, 0), ElementsAre(1, 2));
  EXPECT_THAT(input(*dataset, 1), ElementsAre(3, 4));
}

TEST_F(CsvTest, DelimiterIsNotTrimmedAsABlank) {
  const std::string empty = error("a\tb\tc\n1\t\t\"0\"\n", "delimiter: '\\t' ");
  EXPECT_SAYS(empty, "line 2, column 2 ('b'): is empty; expected a number");
  EXPECT_SAYS(error("a\tb\tc\n\t\"2\"\t0\n", "delimiter: '\\t' "), "line 2, column 1 ('a')");
  EXPECT_SAYS(error("a\tb\tc\n1\t2\t0\n\t\t\n", "delimiter: '\\t' "),
              "line 3, column 1 ('a'): is empty");
  EXPECT_THAT(input(*open(" \"1\" \t 2\t0\n", "delimiter: '\\t' "), 0), ElementsAre(1, 2));
}

TEST_F(CsvTest, UnescapesDoubledQuotesInNames) {
  const auto dataset = open("\"5\"\" disk\",\"\"\"\",c\"\"d\n7,1,8\n7,0,9\n", "label: '\"' ");
  EXPECT_THAT(dataset->columns().names, ElementsAre("5\" disk", "\"", "c\"\"d"));
}

TEST_F(CsvTest, OtherDelimiters) {
  EXPECT_THAT(input(*open("1;2;0\n3;4;1\n", "delimiter: ';' "), 1), ElementsAre(3, 4));
  for (const char* tab : {"'\\t'", "'\\\\t'"}) {
    EXPECT_THAT(input(*open("1\t2\t0\n3\t4\t1\n", std::string("delimiter: ") + tab + " "), 1),
                ElementsAre(3, 4));
  }
}

TEST_F(CsvTest, ShapeAndScale) {
  const auto dataset = open("1,2,3,4,0\n5,6,7,8,1\n", "shape: [1, 2, 2] scale: 0.25 ");
  EXPECT_EQ(dataset->spec().input.shape, (Shape{1, 2, 2}));
  EXPECT_EQ(dataset->spec().scale, 0.25F);
  EXPECT_THAT(input(*dataset, 1), ElementsAre(5, 6, 7, 8));
}

TEST_F(CsvTest, RegressionHasRealTargets) {
  const auto one = open("1,2,0.5\n3,4,-1\n", "regression: true ");
  EXPECT_EQ(one->spec().target, (TensorSpec{DType::kF32, Shape{1}, {}}));
  EXPECT_EQ(one->spec().classes, 0);
  EXPECT_THAT(values<float>(sample(*one, 0).target), ElementsAre(0.5F));
  const auto two = open("a,b,c\n1,2,0.5\n3,4,-1\n", "regression: true label: ['c', 'a'] ");
  EXPECT_THAT(values<float>(sample(*two, 1).target), ElementsAre(-1, 3));
  EXPECT_THAT(input(*two, 1), ElementsAre(4));
}

TEST_F(CsvTest, EvaluationHasTheClassesOfTraining) {
  folder.write("y.csv.gz", gzip("5,6,1\n"));
  const auto evaluation =
      open("1,2,0\n3,4,3\n1,1,1\n1,1,2\n", "eval_file: 'y.csv' ", Part::kEvaluation);
  EXPECT_EQ(evaluation->size(), 1);
  EXPECT_EQ(evaluation->spec().classes, 4);
  folder.write("y.csv.gz", gzip("5,6,1\n7,8,4\n"));
  EXPECT_SAYS(error("1,2,0\n3,4,3\n1,1,1\n1,1,2\n", "eval_file: 'y.csv' ", Part::kEvaluation),
              folder.path("y.csv.gz") + ": line 2, column 3: label 4 is not in [0, 4)");
}

class CsvColumnsTest : public CsvTest {
 protected:
  static constexpr const char* kHouses = "area,rooms,age,price\n100,3,20,394\n50,1,40,150\n";

  DataConfig config(const std::string& training, const std::string& evaluation,
                    const std::string& label = "") {
    folder.write("train.csv", training);
    folder.write("eval.csv", evaluation);
    return folder.config("csv { train_file: 'train.csv' eval_file: 'eval.csv' regression: true " +
                         label + "}");
  }
  // Returns row 0 of the evaluation file as the network reads it: features, then targets.
  std::vector<float> first_row(const DataConfig& config, const OpenOptions& options = {}) {
    const auto dataset = open_dataset(config, Part::kEvaluation, options);
    std::vector<float> row = input(*dataset, 0);
    for (const float target : values<float>(sample(*dataset, 0).target)) row.push_back(target);
    return row;
  }
};

TEST_F(CsvColumnsTest, AreFoundByName) {
  const char* const permuted = "price,age,area,rooms\n394,20,100,3\n";
  for (const char* label : {"", "label: 'last' ", "label: 'price' ", "label: '3' "}) {
    EXPECT_THAT(first_row(config(kHouses, permuted, label)), ElementsAre(100, 3, 20, 394)) << label;
  }
  EXPECT_THAT(first_row(config(kHouses, permuted, "label: ['age', 'area'] ")),
              ElementsAre(3, 394, 20, 100));
}

TEST_F(CsvColumnsTest, OptionsTakePrecedenceOverTheTrainingFile) {
  OpenOptions options;
  options.columns = open_dataset(config(kHouses, kHouses), Part::kTraining)->columns();
  EXPECT_EQ(options.columns, (TableColumns{{"area", "rooms", "age", "price"}, 4, {3}}));
  DataConfig other = config("x\n", "rooms,price,area,age\n3,394,100,20\n");
  EXPECT_THAT(first_row(other, options), ElementsAre(100, 3, 20, 394));
}

TEST_F(CsvColumnsTest, ErrorsNameMissingAndUnknownColumns) {
  const auto refusal = [&](const std::string& evaluation) {
    return data_error(config(kHouses, evaluation), Part::kEvaluation);
  };
  const std::string wrong = refusal("area,roms,age,price\n1,2,3,4\n");
  EXPECT_SAYS(
      wrong,
      folder.path("eval.csv") +
          ": does not have the columns of the training table: no column 'rooms'; an "
          "unknown column 'roms' (did you mean 'rooms'?). The training table has: area, rooms, "
          "age, price");
  EXPECT_SAYS(refusal("foo,bar,baz,price\n1,2,3,4\n"), "no column 'area'; no column 'rooms'; no");
  EXPECT_SAYS(refusal("area,rooms,age\n1,2,3\n"), "no column 'price'");
  EXPECT_SAYS(refusal("area,rooms,age,price,id\n1,2,3,4,5\n"),
              "an unknown column 'id'. The training table has");
  EXPECT_SAYS(refusal("area,rooms,area,price\n1,2,3,4\n"),
              folder.path("eval.csv") + ": has two columns named 'area', 1 and 3");
  EXPECT_SAYS(data_error(config("a,b,a\n1,2,3\n", kHouses), Part::kTraining),
              folder.path("train.csv") + ": has two columns named 'a', 1 and 3");
}

TEST_F(CsvColumnsTest, WithoutAHeaderAreMatchedByPosition) {
  EXPECT_THAT(first_row(config(kHouses, "100,3,20,394\n", "label: 'age' ")),
              ElementsAre(100, 3, 394, 20));
  EXPECT_THAT(first_row(config("1,2,3\n4,5,6\n", "a,b,c\n7,8,9\n", "label: '0' ")),
              ElementsAre(8, 9, 7));
  EXPECT_SAYS(
      data_error(config(kHouses, "100,3,20\n"), Part::kEvaluation),
      folder.path("eval.csv") +
          ": has 3 columns; the training table has 4. Without a header in both, columns are "
          "matched by position");
}

TEST_F(CsvTest, NotANumber) {
  EXPECT_SAYS(error("w,h,kind\n1,2,0\n3,x1,1\n"),
              folder.path("x.csv") + ": line 3, column 2 ('h'): 'x1' is not a number");
  EXPECT_SAYS(error("1,2,0\n3,0x10,1\n"), "line 2, column 2: '0x10' is not a number");
  EXPECT_SAYS(error("1,2,0\n3,4 5,1\n"), "line 2, column 2: '4 5' is not a number");
  EXPECT_SAYS(error("1,2,0\n3,,1\n"), "line 2, column 2: is empty; expected a number");
}

TEST_F(CsvTest, NotFinite) {
  EXPECT_SAYS(error("1,2,0\n3,nan,1\n"), "line 2, column 2: 'nan' is not a finite number");
  EXPECT_SAYS(error("1,2,0\n3,-inf,1\n"), "line 2, column 2: '-inf' is not a finite number");
  EXPECT_SAYS(error("1,2,0\n3,1e999,1\n"), "line 2, column 2: '1e999' is not a finite number");
  EXPECT_SAYS(error("1,2,0\n3,1e39,1\n"), "line 2, column 2: '1e39' is out of the range of 32-bit");
  EXPECT_THAT(input(*open("1,1e-999,0\n2,3,1\n"), 0), ElementsAre(1, 0));
}

TEST_F(CsvTest, RowsOfDifferentLengths) {
  EXPECT_SAYS(error("1,2,0\n\n3,1\n"),
              folder.path("x.csv") + ": line 3: has 2 column(s); the lines before have 3");
  EXPECT_SAYS(error("1,2,0\n3,4,1,\n"), "line 2: has 4 column(s); the lines before have 3");
}

TEST_F(CsvTest, InvalidQuotes) {
  EXPECT_SAYS(error("1,2,0\n3,\"4,1\n"),
              "line 2, column 2: has an opening quote but no closing quote");
  EXPECT_SAYS(error("1,2,0\n\"3\"x,4,1\n"), "line 2, column 1: has text after its closing quote");
}

TEST_F(CsvTest, NoRows) {
  EXPECT_SAYS(error(""), folder.path("x.csv") + ": has no rows");
  EXPECT_SAYS(error("\n \n"), ": has no rows");
  EXPECT_SAYS(error("a,b,c\n"), ": has a header but no rows");
}

TEST_F(CsvTest, SuggestsAWrongDelimiterAsTheCause) {
  EXPECT_SAYS(error("1\n2\n"), "has a single column");
  EXPECT_SAYS(error("1\n2\n"), "data.csv.delimiter");
}

TEST_F(CsvTest, LabelOutOfRange) {
  EXPECT_SAYS(error("1,2,0\n3,4,5\n", "classes: 5 "),
              folder.path("x.csv") + ": line 2, column 3: label 5 is not in [0, 5)");
  EXPECT_SAYS(error("1,2,0\n3,4,-1\n"), "line 2, column 3: label -1 is negative");
  EXPECT_SAYS(error("1,2,0\n3,4,0.5\n"), "line 2, column 3: label 0.5 is not an integer");
  EXPECT_SAYS(error("1,2,0\n3,4,1000\n"), "line 2, column 3: label 1000 implies more classes than");
}

TEST_F(CsvTest, MissingFile) {
  EXPECT_SAYS(data_error(folder.config("csv { train_file: 'y.csv' }")),
              "has no file y.csv or y.csv.gz");
}

TEST_F(CsvTest, BadConfiguration) {
  EXPECT_SAYS(refused(""), "data.csv.train_file: is missing");
  EXPECT_SAYS(refused("train_file: 'x.csv' delimiter: ',,' "),
              "data.csv.delimiter: ',,' is not a single character");
  EXPECT_SAYS(
      refused("train_file: 'x.csv' label: '3' "),
      "data.csv.label: there is no column '3'; " + folder.path("x.csv") + " has columns 0 to 2");
  EXPECT_SAYS(refused("train_file: 'x.csv' label: 'kond' ", "width,height,kind\n1,2,0\n"),
              "data.csv.label: there is no column 'kond'; did you mean 'kind'?");
  EXPECT_SAYS(refused("train_file: 'x.csv' label: ['0', '1'] "),
              "data.csv.label: names several columns");
  EXPECT_SAYS(refused("train_file: 'x.csv' regression: true label: ['2', 'last'] "),
              "data.csv.label: names column 2 twice");
  EXPECT_SAYS(refused("train_file: 'x.csv' regression: true label: ['0', '1', '2'] "),
              "data.csv.label: leaves no column");
  EXPECT_SAYS(refused("train_file: 'x.csv' regression: true classes: 3 "),
              "data.csv.classes: cannot be combined");
  EXPECT_SAYS(
      refused("train_file: 'x.csv' shape: [1, 2, 2] "),
      "data.csv.shape: [1, 2, 2] has 4 elements, but " + folder.path("x.csv") + " has 2 features");
  EXPECT_SAYS(refused("train_file: 'x.csv' shape: [1, 2] "), "data.csv.shape: has 2 extents");
  EXPECT_SAYS(refused("train_file: 'x.csv' scale: 0 "), "data.csv.scale: is 0; it must be");
  folder.write("x.csv", "1,2,0\n");
  EXPECT_SAYS(config_error(folder.config("csv { train_file: 'x.csv' }"), Part::kEvaluation),
              "data.csv.eval_file: is missing; set it, or set data.holdout: 0.2");
  EXPECT_SAYS(
      config_error(folder.config("csv { train_file: 'x.csv' eval_file: 'x.csv' } holdout: 0.5")),
      "data.csv.eval_file: cannot be combined with data.holdout");
}

}  // namespace
}  // namespace trireme::data
