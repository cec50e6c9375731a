#include "data/formats/npy_array.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>

#include "core/error.h"

namespace trireme::data {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kNpyMagic = "\x93NUMPY"sv;
constexpr size_t kAlignment = 64;  // bytes; of the first element in a file
constexpr int64_t kMaxChannels = 4;

std::string_view text_of(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The header, a Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4)}.
struct NpyHeader {
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<int64_t>> shape;
};

class HeaderReader {
 public:
  HeaderReader(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  NpyHeader read() {
    NpyHeader header;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr") {
        header.descr = descr();
      } else if (key == "fortran_order") {
        header.fortran_order = boolean();
      } else if (key == "shape") {
        header.shape = shape();
      } else {
        fail(fmt::format("unknown key '{}'", key));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    if (!header.descr || !header.fortran_order || !header.shape) {
      fail("descr, fortran_order and shape are required");
    }
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(where_, "has an invalid NumPy header: " + what);
  }
  char peek() {
    at_ = std::min(text_.find_first_not_of(" \t\n\r", at_), text_.size());
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("expected '{}' at byte {} of the dictionary", c, at_));
  }
  std::string string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail(fmt::format("expected a string at byte {}", at_));
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail(fmt::format("unterminated string at byte {}", at_));
    const std::string value(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return value;
  }
  std::string descr() {
    if (peek() == '[' || peek() == '(') {
      throw DataError(where_, "is a structured array; save each field as a separate array");
    }
    return string();
  }
  bool boolean() {
    peek();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return value;
    }
    fail(fmt::format("expected True or False at byte {}", at_));
  }
  std::vector<int64_t> shape() {
    std::vector<int64_t> extents;
    expect('(');
    while (!accept(')')) {
      peek();
      int64_t extent = 0;
      const auto [end, error] =
          std::from_chars(text_.data() + at_, text_.data() + text_.size(), extent);
      if (error != std::errc() || extent < 0) {
        fail(fmt::format("expected an extent at byte {}", at_));
      }
      at_ = end - text_.data();
      extents.push_back(extent);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return extents;
  }

  std::string_view text_;
  const std::string& where_;
  size_t at_ = 0;
};

struct NamedType {
  std::string_view descr;
  DType dtype;
};
constexpr NamedType kTypes[] = {{"|u1", DType::kU8},
                                {"<i4", DType::kI32},
                                {"<i8", DType::kI64},
                                {"<f4", DType::kF32},
                                {"<f8", DType::kF64}};

// Returns the message about an unsupported type, with a remedy.
std::string unsupported_type(std::string_view descr) {
  if (descr == "|b1") return "contains booleans; save x.astype('u1')";
  if (descr.substr(0, 2) == "|O") return "contains Python objects; save an array of numbers";
  if (descr.substr(0, 1) == ">") {
    return fmt::format("is big-endian ('{}'); save x.astype('<{}')", descr, descr.substr(1));
  }
  const char kind = descr.size() > 1 ? descr[1] : 'f';
  return fmt::format(
      "has elements of type '{}'; only u1, i4, i8, f4 and f8 are supported: save {}", descr,
      kind == 'i' || kind == 'u'   ? "x.astype('i8') for labels, x.astype('f4') for inputs"
      : kind == 'U' || kind == 'S' ? "np.unique(x, return_inverse=True)[1]"
                                   : "x.astype('f4')");
}

DType dtype_of(std::string_view descr, const std::string& where) {
  for (const NamedType& type : kTypes) {
    if (type.descr == descr || (type.dtype == DType::kU8 && descr == "<u1")) return type.dtype;
  }
  throw DataError(where, unsupported_type(descr));
}

// Returns the text of the dictionary. Sets `end` to the position of the first element.
std::string_view find_header(std::span<const uint8_t> bytes, const std::string& where,
                             size_t& end) {
  const std::string_view text = text_of(bytes);
  if (text.substr(0, 4) == "PK\3\4"sv) {
    throw DataError(where, "is an archive of arrays (.npz); save each with numpy.save");
  }
  if (text.substr(0, 2) == "\x1f\x8b"sv) {
    throw DataError(where, "is gzip-compressed; decompress it, since arrays are memory-mapped");
  }
  if (text.substr(0, kNpyMagic.size()) != kNpyMagic) {
    throw DataError(where, "is not a NumPy array (.npy): it does not begin with \\x93NUMPY");
  }
  const size_t version = text.size() > 6 ? bytes[6] : 0;
  const size_t length_bytes = version == 1 ? 2 : 4;
  end = kNpyMagic.size() + 2 + length_bytes;
  if (text.size() < end) throw DataError(where, "is truncated: it ends within its header");
  if (version < 1 || version > 3) {
    throw DataError(where, fmt::format("has .npy version {}; 1 to 3 are supported", version));
  }
  size_t length = 0;
  for (size_t i = 0; i < length_bytes; ++i) {
    length |= size_t{bytes[kNpyMagic.size() + 2 + i]} << (8 * i);
  }
  if (text.size() - end < length) throw DataError(where, "is truncated: it ends within its header");
  const std::string_view header = text.substr(end, length);
  end += length;
  return header;
}

template <class T>
void convert_to_floats(const uint8_t* from, std::span<float> to) {
  for (float& value : to) {
    T element;
    std::memcpy(&element, from, sizeof element);
    from += sizeof element;
    value = static_cast<float>(element);
  }
}

template <class T>
int64_t read_integer(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace

int64_t NpyArray::row_elements() const {
  int64_t count = 1;
  for (size_t i = 1; i < shape.size(); ++i) {
    if (shape[i] == 0) return 0;
    if (__builtin_mul_overflow(count, shape[i], &count)) count = INT64_MAX;
  }
  return count;
}

int64_t NpyArray::complete_rows() const {
  const int64_t row = row_elements();
  if (row == 0) return rows();
  const auto available = static_cast<int64_t>(elements.size() / size_of(dtype));
  return std::min(rows(), available / row);
}

std::string NpyArray::describe() const {
  return fmt::format("{} [{}]", name_of(dtype), fmt::join(shape, ", "));
}

NpyArray parse_npy(std::span<const uint8_t> bytes, const std::string& where) {
  size_t begin = 0;
  const std::string_view text = find_header(bytes, where, begin);
  const NpyHeader header = HeaderReader(text, where).read();
  NpyArray array;
  array.dtype = dtype_of(*header.descr, where);
  if (*header.fortran_order && header.shape->size() > 1) {
    throw DataError(where, "is in Fortran order; save numpy.ascontiguousarray(x)");
  }
  array.shape = *header.shape;
  array.elements = bytes.subspan(begin);
  if (!array.complete()) return array;
  // Cannot overflow, as the file has all of these bytes.
  const size_t length = array.rows() * array.row_elements() * size_of(array.dtype);
  if (length < array.elements.size()) {
    throw DataError(where, fmt::format("has {} bytes after its array, {}",
                                       array.elements.size() - length, array.describe()));
  }
  return array;
}

std::string describe_truncation(const NpyArray& array) {
  return fmt::format("is truncated: the header declares {}, but the file has only {} bytes of it",
                     array.describe(), array.elements.size());
}

TensorSpec sample_spec(const NpyArray& array, size_t first, const std::string& where) {
  const std::span<const int64_t> s = std::span(array.shape).subspan(first);
  const auto fail = [&](const char* reason) {
    throw DataError(where, fmt::format("is {}; {}", array.describe(), reason));
  };
  if (std::ranges::find(s, 0) != s.end()) fail("it has no elements");
  if (array.row_elements() > int64_t{1} << 31) fail("a sample can have at most 2^31 elements");
  if (array.dtype == DType::kU8) {
    if (s.size() == 1) return {DType::kU8, Shape{s[0]}, Layout::row_major()};
    if (s.size() == 2) return {DType::kU8, Shape{1, s[0], s[1]}, Layout::channels_last()};
    if (s.size() != 3) fail("u8 samples must be [H, W], [H, W, C] or [F]");
    if (s[2] > kMaxChannels) {
      fail(
          "images must have 1 to 4 channels as the last dimension; if they are the first one, save "
          "numpy.moveaxis(x, -3, -1)");
    }
    return {DType::kU8, Shape{s[2], s[0], s[1]}, Layout::channels_last()};
  }
  if (array.dtype != DType::kF32 && array.dtype != DType::kF64) {
    fail("inputs must be u8, f32 or f64");
  }
  if (s.size() == 1) return {DType::kF32, Shape{s[0]}, Layout::row_major()};
  if (s.size() != 3) fail("f32 and f64 samples must be [C, H, W] or [F]");
  return {DType::kF32, Shape{s[0], s[1], s[2]}, Layout::row_major()};
}

int64_t first_not_finite(std::span<const float> values) {
  constexpr uint32_t kInfinity = 0x7f800000;
  uint32_t largest = 0;  // of the bits without sign; those of NaN are larger than infinity's
  for (const float value : values) {
    largest = std::max(largest, std::bit_cast<uint32_t>(value) & 0x7fffffff);
  }
  if (largest < kInfinity) return -1;
  return std::ranges::find_if_not(values, [](float v) { return std::isfinite(v); }) -
         values.begin();
}

void copy_sample(const TensorSpec& spec, DType dtype, const uint8_t* from, std::byte* to) {
  if (dtype == spec.dtype) {
    std::memcpy(to, from, spec.bytes());
  } else {
    const size_t elements = spec.shape.elements();
    to_floats(dtype, from, {reinterpret_cast<float*>(to), elements});
  }
}

std::vector<uint8_t> encode_npy(DType dtype, std::span<const int64_t> shape,
                                std::span<const uint8_t> elements) {
  const auto* type =
      std::ranges::find_if(kTypes, [&](const NamedType& named) { return named.dtype == dtype; });
  if (type == std::end(kTypes)) {
    throw Error(fmt::format("{} cannot be saved as .npy", name_of(dtype)));
  }
  // A Python tuple with one element needs a comma: (3,).
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", type->descr,
                  fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  const size_t before = kNpyMagic.size() + 4 + header.size() + 1;
  header.append((kAlignment - before % kAlignment) % kAlignment, ' ').push_back('\n');
  std::vector<uint8_t> bytes(kNpyMagic.begin(), kNpyMagic.end());
  for (const size_t byte : {size_t{1}, size_t{0}, header.size() & 0xff, header.size() >> 8}) {
    bytes.push_back(static_cast<uint8_t>(byte));
  }
  bytes.insert(bytes.end(), header.begin(), header.end());
  bytes.insert(bytes.end(), elements.begin(), elements.end());
  return bytes;
}

void to_floats(DType dtype, const uint8_t* from, std::span<float> to) {
  switch (dtype) {
    case DType::kF32:
      return convert_to_floats<float>(from, to);
    case DType::kF64:
      return convert_to_floats<double>(from, to);
    case DType::kI32:
      return convert_to_floats<int32_t>(from, to);
    case DType::kI64:
      return convert_to_floats<int64_t>(from, to);
    default:
      return convert_to_floats<uint8_t>(from, to);
  }
}

int64_t to_integer(DType dtype, const uint8_t* from) {
  switch (dtype) {
    case DType::kI32:
      return read_integer<int32_t>(from);
    case DType::kI64:
      return read_integer<int64_t>(from);
    default:
      return *from;
  }
}

}  // namespace trireme::data
