#include <variant>

#include <truefuse/core/error.h>
#include <truefuse/description/derivative.h>

namespace truefuse::description {
namespace {

std::string dtypes_of(const Contract& contract, const TensorSpec& tensor) {
  if (tensor.like) return dtypes_of(contract, *contract.arguments()[*tensor.like].tensor());
  std::string text;
  for (const DType dtype : tensor.dtypes)
    text += (text.empty() ? "" : "|") + std::string(short_name(dtype));
  return text;
}

/// As a contract writes it, without a range.
std::string text_of(const ScalarSpec& scalar) {
  if (const auto* words = std::get_if<EnumerationSpec>(&scalar)) {
    std::string text;
    for (const std::string& word : words->values)
      text += (text.empty() ? "\"" : "|\"") + word + '"';
    return text;
  }
  return std::string(std::visit([](const auto& spec) { return spec.kGrammar; }, scalar));
}

}  // namespace

Operator backward_of(const Described& described) {
  const Operator& op = described.op;
  const Contract& contract = op.contract;
  if (contract.mutates()) {
    throw Error(op.name + " writes its arguments, so no function of them can be its backward");
  }
  std::string arguments, text, results, outputs;
  const auto add = [](std::string& list, const char* separator, const std::string& item) {
    list += (list.empty() ? "" : separator) + item;
  };
  for (const OutputSpec& output : contract.outputs()) {
    add(arguments, ", ", "Tensor grad_" + output.name);
    add(text, "; ",
        "grad_" + output.name + ": " + dtypes_of(contract, output.tensor) + " " +
            contract.text_of_dims(output.tensor) + " strided");
  }
  for (const ArgumentSpec& argument : contract.arguments()) {
    const std::string mark = argument.optional ? "?" : "";
    const std::string optional = argument.optional ? " optional" : "";
    if (const TensorSpec* tensor = argument.tensor()) {
      add(arguments, ", ", "Tensor" + mark + " " + argument.name);
      add(text, "; ",
          argument.name + ": " + dtypes_of(contract, *tensor) + " " +
              contract.text_of_dims(*tensor) + " strided" + optional);
    } else {
      const auto& scalar = std::get<ScalarSpec>(argument.spec);
      add(arguments, ", ", std::string(schema_type(scalar)) + mark + " " + argument.name);
      add(text, "; ", argument.name + ": " + text_of(scalar) + optional);
    }
  }
  for (const std::string& name : described.gradients) {
    for (const ArgumentSpec& argument : contract.arguments()) {
      if (argument.name != name) continue;
      add(arguments, ", ", "bool " + name + "_wanted");
      add(text, "; ", name + "_wanted: bool");
      add(results, ", ", "Tensor");
      add(outputs, "; ",
          "grad_" + name + ": like " + name + " " + contract.text_of_dims(*argument.tensor()) +
              " contiguous if " + name + "_wanted");
    }
  }
  Operator backward;
  backward.name_space = op.name_space;
  backward.name = op.name + "_backward";
  backward.schema = backward.name + "(" + arguments + ") -> " +
                    (described.gradients.size() == 1 ? results : "(" + results + ")");
  backward.contract = Contract::parse(text + " -> " + outputs);
  backward.summary = "The gradient of " + op.name + ", in PyTorch's operations.";
  return backward;
}

}  // namespace truefuse::description
