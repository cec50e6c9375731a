#include "core/tensor.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

class Padded final : public OpaqueLayout {
 public:
  explicit Padded(int64_t elements) : elements_(elements) {}
  int64_t elements() const override { return elements_; }
  bool equals(const OpaqueLayout& other) const override { return other.elements() == elements_; }
  std::string name() const override { return "nChw16c"; }

 private:
  int64_t elements_;
};

TEST(Shape, CountsAndCompares) {
  EXPECT_EQ(Shape().elements(), 1);
  EXPECT_EQ((Shape{4, 3, 2}).elements(), 24);
  EXPECT_EQ((Shape{4, 0, 2}).elements(), 0);
  EXPECT_EQ((Shape{4, 3}), (Shape{4, 3}));
  EXPECT_FALSE((Shape{4, 3} == Shape{4, 3, 1}));
  EXPECT_FALSE((Shape{4, 3} == Shape{3, 4}));
  EXPECT_EQ((Shape{64, 3, 32, 32}).to_string(), "[64, 3, 32, 32]");
  EXPECT_EQ(Shape().to_string(), "[]");
}

TEST(TensorSpec, ComputesItsSize) {
  EXPECT_EQ((TensorSpec{DType::kF32, {2, 3}, {}}).bytes(), 24u);
  EXPECT_EQ((TensorSpec{DType::kF64, {2, 3}, {}}).bytes(), 48u);
  EXPECT_EQ((TensorSpec{DType::kBF16, {2, 3}, {}}).bytes(), 12u);
  EXPECT_EQ((TensorSpec{DType::kU8, {2, 3}, Layout::channels_last()}).bytes(), 6u);
  EXPECT_EQ((TensorSpec{DType::kF32, {2, 3}, Layout(std::make_shared<Padded>(32))}).bytes(), 128u);
  EXPECT_EQ((TensorSpec{DType::kBF16, {2, 3}, Layout(std::make_shared<Padded>(32))}).bytes(), 64u);
}

TEST(TensorSpec, ConvertsToString) {
  const Layout blocked(std::make_shared<Padded>(1));
  EXPECT_EQ((TensorSpec{DType::kF32, {64, 16}, blocked}).to_string(), "f32 [64, 16] nChw16c");
  EXPECT_EQ((TensorSpec{DType::kI32, {64}, {}}).to_string(), "i32 [64] row-major");
  EXPECT_EQ((TensorSpec{DType::kF16, {64}, Layout::any()}).to_string(), "f16 [64] any");
}

TEST(Layout, OpaqueLayoutsCompareByContent) {
  const Layout a(std::make_shared<Padded>(64)), b(std::make_shared<Padded>(64));
  const Layout c(std::make_shared<Padded>(128));
  EXPECT_EQ(a, b);
  EXPECT_FALSE(a == c);
  EXPECT_FALSE(a == Layout::row_major());
  EXPECT_FALSE(Layout::row_major() == Layout::channels_last());
  EXPECT_TRUE(Layout::any().is_any());
  EXPECT_EQ((TensorSpec{DType::kF32, {1}, {}}).with(a).layout, b);
}

}  // namespace
}  // namespace trireme
