#include <algorithm>
#include <string>
#include <vector>

#include <truefuse/binding/schema.h>
#include <truefuse/core/error.h>

namespace truefuse::binding {
namespace {

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

bool is_optional(const c10::Argument& argument) {
  return argument.type()->kind() == c10::TypeKind::OptionalType;
}

/// "Tensor", "int"; without a question mark.
std::string type_of(const c10::Argument& argument) {
  if (const auto optional = argument.type()->cast<c10::OptionalType>()) {
    return optional->getElementType()->str();
  }
  return argument.type()->str();
}

std::string type_of(const ArgumentSpec& spec) {
  return spec.tensor() != nullptr ? "Tensor"
                                  : std::string(schema_type(std::get<ScalarSpec>(spec.spec)));
}

/// How one argument differs, or nothing.
std::string difference(const c10::Argument& argument, const ArgumentSpec& spec) {
  const std::string type = type_of(argument);
  if (argument.name() != spec.name) {
    return "where the schema has " + argument.name() + " the contract has " + spec.name +
           "; both have the same arguments in the same order";
  }
  if (type != type_of(spec)) {
    return spec.name + " is " + type + " in the schema; as the contract has it, it must be " +
           type_of(spec);
  }
  if (is_optional(argument) != spec.optional) {
    return spec.name +
           (spec.optional ? " is optional in the contract; in the schema it must be "
                          : " is not optional in the contract; in the schema it must be ") +
           type_of(spec) + (spec.optional ? "?" : "");
  }
  if (is_written(argument) != spec.is_mutated()) {
    return spec.name + (spec.is_mutated()
                            ? " is mutated in the contract; in the schema it must be Tensor(a!)"
                            : " is written in the schema, Tensor(a!); call it mutated in the "
                              "contract");
  }
  return {};
}

}  // namespace

void require_same(const Operator& op, const c10::FunctionSchema& schema) {
  const std::vector<ArgumentSpec>& specs = op.contract.arguments();
  const std::vector<c10::Argument>& arguments = schema.arguments();
  const auto refuse = [&](const std::string& what) {
    throw Error(op.name + ": its schema " + op.schema + " and its contract " + op.contract.text() +
                " differ: " + what);
  };
  for (std::size_t i = 0; i < std::min(arguments.size(), specs.size()); ++i) {
    const std::string what = difference(arguments[i], specs[i]);
    if (!what.empty()) refuse(what);
  }
  if (arguments.size() > specs.size()) {
    refuse("the contract says nothing of " + arguments[specs.size()].name());
  }
  if (specs.size() > arguments.size()) {
    refuse("the schema has no " + specs[arguments.size()].name);
  }
  if (schema.returns().size() != op.contract.outputs().size()) {
    refuse("the schema returns " + std::to_string(schema.returns().size()) +
           " values, the contract has " + std::to_string(op.contract.outputs().size()) +
           " outputs");
  }
}

}  // namespace truefuse::binding
