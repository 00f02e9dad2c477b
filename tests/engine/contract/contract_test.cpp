#include <gtest/gtest.h>
#include <string>

#include <truefuse/contract/contract.h>

namespace truefuse {
namespace {

TEST(ContractJson, DescribesEveryRule) {
  const Contract contract = Contract::parse(
      "x: f32|i8 [rows.., 2*d] rows-strided mutated; m: like x [d, 3] strided optional "
      "aligned(16); a: \"tanh\"|\"no\"; k: int [0, inf); t: float [0, inf); u: float; b: bool "
      "-> out: bf16 [rows.., d] contiguous if b");
  EXPECT_EQ(
      contract.json(),
      "{\"text\":\"x: f32|i8 [rows.., 2*d] rows-strided mutated; m: like x [d, 3] strided optional "
      "aligned(16); a: \\\"tanh\\\"|\\\"no\\\"; k: int [0, inf); t: float [0, inf); u: float; "
      "b: bool -> out: bf16 [rows.., d] contiguous if b\","
      "\"symbols\":[{\"name\":\"rows\",\"pack\":true},{\"name\":\"d\",\"pack\":false}],"
      "\"arguments\":["
      "{\"name\":\"x\",\"optional\":false,\"kind\":\"tensor\",\"dtypes\":[\"f32\",\"i8\"],"
      "\"torch_dtypes\":[\"float32\",\"int8\"],\"like\":null,\"pack\":\"rows\","
      "\"dims\":[{\"text\":\"2*d\",\"factor\":2,\"symbols\":[\"d\"]}],"
      "\"layout\":\"rows-strided\",\"mutated\":true,\"alignment\":1},"
      "{\"name\":\"m\",\"optional\":true,\"kind\":\"tensor\",\"dtypes\":[],\"torch_dtypes\":[],"
      "\"like\":\"x\",\"pack\":null,\"dims\":[{\"text\":\"d\",\"factor\":1,\"symbols\":[\"d\"]},"
      "{\"text\":\"3\",\"factor\":3,\"symbols\":[]}],"
      "\"layout\":\"strided\",\"mutated\":false,\"alignment\":16},"
      "{\"name\":\"a\",\"optional\":false,\"kind\":\"string\",\"values\":[\"tanh\",\"no\"]},"
      "{\"name\":\"k\",\"optional\":false,\"kind\":\"int\",\"low\":0,\"high\":null},"
      "{\"name\":\"t\",\"optional\":false,\"kind\":\"float\",\"range\":{\"low\":0,"
      "\"low_open\":false,\"high\":null,\"high_open\":true}},"
      "{\"name\":\"u\",\"optional\":false,\"kind\":\"float\",\"range\":null},"
      "{\"name\":\"b\",\"optional\":false,\"kind\":\"bool\"}],"
      "\"outputs\":[{\"name\":\"out\",\"if\":\"b\",\"kind\":\"tensor\",\"dtypes\":[\"bf16\"],"
      "\"torch_dtypes\":[\"bfloat16\"],\"like\":null,\"pack\":\"rows\","
      "\"dims\":[{\"text\":\"d\",\"factor\":1,\"symbols\":[\"d\"]}],"
      "\"layout\":\"contiguous\",\"mutated\":false,\"alignment\":1}]}");
}

TEST(ContractJson, IntegersThatAreSizesAndText) {
  const std::string json = Contract::parse("n: int [1, 8] = heads; t: text optional").json();
  EXPECT_NE(json.find("{\"name\":\"n\",\"optional\":false,\"kind\":\"int\",\"low\":1,\"high\":8,"
                      "\"symbol\":\"heads\"}"),
            std::string::npos);
  EXPECT_NE(json.find("{\"name\":\"t\",\"optional\":true,\"kind\":\"text\"}"), std::string::npos);
}

TEST(ContractJson, TheEmptyContractIsJsonToo) {
  EXPECT_EQ(Contract().json(), "{\"text\":\"\",\"symbols\":[],\"arguments\":[],\"outputs\":[]}");
}

}  // namespace
}  // namespace truefuse
