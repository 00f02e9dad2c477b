#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace truefuse::layout::tree {

/// A size: a name that is bound later, or a number.
struct Atom {
  std::string name;
  std::int64_t number = 1;
  std::size_t position = 0;  // In the layout's text, for errors.

  bool is_same(const Atom& other) const { return name == other.name && number == other.number; }
};

/// Products and quotients from left to right.
struct Product {
  struct Step {
    Atom atom;
    bool divides = false;
  };
  std::vector<Step> steps;  // At least one.
};

struct Factor {
  std::string axis;
  Product size;                         // Of the whole axis.
  std::optional<Atom> divisor, modulus;  // A part of the axis, if either is there.
  std::optional<Product> stride;
  std::size_t position = 0;

  bool is_part() const { return divisor || modulus; }
};

struct Piece {
  std::vector<Factor> factors;
  std::string segment;  // Empty if there are children.
  std::vector<Piece> children;
};

}  // namespace truefuse::layout::tree
