#include <array>
#include <cstdint>
#include <gtest/gtest.h>
#include <numeric>

#include <truefuse/device/vector.h>

namespace {

/// Loads N elements of T whose bytes count up, compares each, stores them elsewhere, both ways.
template <class T, int N>
void round_trip() {
  constexpr std::size_t kBytes = N * sizeof(T);
  alignas(16) std::array<std::uint8_t, kBytes> from, to, streamed;
  std::iota(from.begin(), from.end(), std::uint8_t{1});
  to.fill(0);
  streamed.fill(0);
  const T* const source = reinterpret_cast<const T*>(from.data());

  const tf::Vector<T, N> vector = tf::load<N>(source);
  for (int i = 0; i < N; ++i) {
    std::array<std::uint8_t, sizeof(T)> bytes{};
    std::copy_n(from.begin() + i * sizeof(T), sizeof(T), bytes.begin());
    EXPECT_EQ((tf::bit_cast<std::array<std::uint8_t, sizeof(T)>>(vector[i])), bytes)
        << "element " << i << " of " << N << ", " << sizeof(T) << " bytes each";
  }
  tf::store(reinterpret_cast<T*>(to.data()), vector);
  tf::store_streaming(reinterpret_cast<T*>(streamed.data()), tf::load_streaming<N>(source));
  EXPECT_EQ(to, from);
  EXPECT_EQ(streamed, from);
  static_assert(alignof(tf::Vector<T, N>) == (kBytes < 16 ? kBytes : 16));
}

TEST(Vector, LoadsAndStoresEveryWidth) {
  round_trip<tf::u8, 1>();
  round_trip<tf::u8, 2>();
  round_trip<tf::u8, 4>();
  round_trip<tf::u8, 16>();
  round_trip<tf::bf16, 1>();
  round_trip<tf::f16, 2>();
  round_trip<tf::bf16, 4>();
  round_trip<tf::bf16, 8>();
  round_trip<tf::f16, 16>();
  round_trip<float, 1>();
  round_trip<float, 2>();
  round_trip<float, 4>();
  round_trip<float, 8>();
  round_trip<double, 1>();
  round_trip<double, 2>();
  round_trip<tf::i64, 4>();
}

TEST(Vector, ElementsCanBeAssigned) {
  tf::Vector<tf::u16, 4> vector = {{1, 2, 3, 4}};
  vector[2] = 9;
  EXPECT_EQ(vector[2], 9);
  EXPECT_EQ(vector[3], 4);
}

template <class T>
void converts() {
  tf::Vector<float, 8> values;
  for (int i = 0; i < 8; ++i) values[i] = 0.1f * static_cast<float>(i - 3);
  const tf::Vector<T, 8> narrow = tf::from_float<T>(values);
  const tf::Vector<float, 8> wide = tf::to_float(narrow);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(narrow[i].bits, tf::from_float<T>(values[i]).bits) << i;
    EXPECT_EQ(wide[i], tf::to_float(narrow[i])) << i;
  }
  EXPECT_EQ(tf::from_float<T>(tf::Vector<float, 1>{{0.3f}})[0].bits, tf::from_float<T>(0.3f).bits);
}

TEST(Vector, ConversionIsElementwise) {
  converts<tf::f16>();
  converts<tf::bf16>();
  const tf::Vector<double, 2> doubles = {{0.1, 0.2}};
  EXPECT_EQ(tf::from_float<double>(tf::to_float(doubles))[1], 0.2);
}

}  // namespace
