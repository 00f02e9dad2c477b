#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace truefuse {

/// A sequence whose first N elements live in the object itself, so that the usual call allocates
/// nothing. T is default-constructible.
template <class T, std::size_t N>
class SmallVector {
 public:
  SmallVector() = default;
  explicit SmallVector(std::size_t size) {
    if (size > N) {
      heap_.resize(size);
    } else {
      inline_size_ = size;
    }
  }

  void push_back(T value) {
    if (heap_.empty() && inline_size_ < N) {
      inline_[inline_size_++] = std::move(value);
      return;
    }
    if (heap_.empty()) {
      for (T& element : inline_) heap_.push_back(std::move(element));
    }
    heap_.push_back(std::move(value));
  }

  void clear() {
    heap_.clear();
    inline_size_ = 0;
  }

  std::size_t size() const { return heap_.empty() ? inline_size_ : heap_.size(); }
  T* data() { return heap_.empty() ? inline_.data() : heap_.data(); }
  const T* data() const { return heap_.empty() ? inline_.data() : heap_.data(); }
  T& operator[](std::size_t i) { return data()[i]; }
  const T& operator[](std::size_t i) const { return data()[i]; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size(); }
  operator std::span<const T>() const { return {data(), size()}; }

 private:
  std::array<T, N> inline_{};
  std::size_t inline_size_ = 0;
  std::vector<T> heap_;  // All elements, once there are more than N.
};

}  // namespace truefuse
