#pragma once

#include "truefuse/sim/report.h"

#include <stdlib.h>
#include <string.h>

// What is known to have happened before what. A point in time of a lane is its block's phase
// (barriers passed), its wave's phase (wave_sync passed) and its own epoch (releases made). To know
// a key until `end` is to come after everything that it did in phases or epochs below `end`.

namespace tf_sim {

using Key = u64;  ///< Block * 4096, plus a lane's number, 2048 + a wave's, or 4095 for the block.

inline Key lane_key(u64 block, u32 lane) { return block << 12 | lane; }
inline Key wave_key(u64 block, u32 wave_number) { return block << 12 | 2048 | wave_number; }
inline Key block_key(u64 block) { return block << 12 | 4095; }

/// A set of (key, end), sorted by key.
class Knowledge {
 public:
  Knowledge() = default;
  ~Knowledge() { free(entries_); }
  Knowledge(const Knowledge&) = delete;
  Knowledge& operator=(const Knowledge&) = delete;

  bool empty() const { return count_ == 0; }
  void clear() { count_ = 0; }

  u32 end_of(Key key) const {
    const u32 i = position_of(key);
    return i < count_ && entries_[i].key == key ? entries_[i].end : 0;
  }

  void add(Key key, u32 end) {
    const u32 i = position_of(key);
    if (i < count_ && entries_[i].key == key) {
      if (entries_[i].end < end) entries_[i].end = end;
      return;
    }
    reserve(count_ + 1);
    memmove(entries_ + i + 1, entries_ + i, (count_ - i) * sizeof(Entry));
    entries_[i] = {key, end};
    ++count_;
  }

  void add(const Knowledge& other) {
    if (&other == this) return;
    for (u32 i = 0; i < other.count_; ++i) add(other.entries_[i].key, other.entries_[i].end);
  }

 private:
  struct Entry {
    Key key;
    u32 end;
  };

  u32 position_of(Key key) const {
    u32 low = 0, high = count_;
    while (low < high) {
      const u32 middle = low + (high - low) / 2;
      if (entries_[middle].key < key) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  void reserve(u32 count) {
    if (count <= capacity_) return;
    capacity_ = count < 8 ? 8 : count * 2;
    entries_ = static_cast<Entry*>(realloc(entries_, capacity_ * sizeof(Entry)));
    if (entries_ == nullptr) refuse("no memory to follow what atomics order");
  }

  Entry* entries_ = nullptr;
  u32 count_ = 0, capacity_ = 0;
};

/// What an atomic variable hands on: what those knew who released to it.
class Released {
 public:
  /// Null if nobody has released to it and `make` is false.
  Knowledge* at(const void* address, bool make) {
    Node*& first = buckets_[(reinterpret_cast<u64>(address) >> 2) % kBuckets];
    for (Node* node = first; node != nullptr; node = node->next) {
      if (node->address == address) return &node->knowledge;
    }
    if (!make) return nullptr;
    Node* const node = new Node;
    node->address = address;
    node->next = first;
    first = node;
    return &node->knowledge;
  }

 private:
  static constexpr u32 kBuckets = 4096;
  struct Node {
    const void* address = nullptr;
    Knowledge knowledge;
    Node* next = nullptr;
  };
  Node* buckets_[kBuckets] = {};
};

inline Released released;

}  // namespace tf_sim
