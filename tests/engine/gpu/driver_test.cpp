// The CUDA and HIP drivers against fake libraries, found as the real ones are: by what is mapped.

#include <dlfcn.h>
#include <future>
#include <gtest/gtest.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include <truefuse/gpu/driver.h>
#include <truefuse/gpu/library.h>

#include "../error_of.h"
#include "fake_driver.h"

namespace truefuse::gpu {
namespace {

using testing::error_of;

/// Maps a fake before anything looks for the real library.
void* map(const char* path) {
  void* handle = dlopen(path, RTLD_NOW);
  if (handle == nullptr) throw std::runtime_error(dlerror());
  return handle;
}

FakeState& state_of(void* handle) {
  return *reinterpret_cast<FakeState* (*)()>(dlsym(handle, "fake_state"))();
}

Launch launch_of(int parameter) {
  Launch launch;
  launch.kernel = "present";
  launch.grid = {7, 1, 1};
  launch.block = {128, 1, 1};
  launch.parameters.add(parameter);
  return launch;
}

void launch(Driver& driver, int device, const Function& function, Launch& launch, void* stream) {
  void* parameters[] = {launch.parameters.data(0)};
  driver.launch(device, function, launch, stream, parameters);
}

class CudaDriver : public ::testing::Test {
 protected:
  void* handle = map(TRUEFUSE_FAKE_CUDA);
  FakeState& fake = state_of(handle);
  std::unique_ptr<Driver> driver = open_cuda_driver();

  void SetUp() override {
    fake = FakeState();
    ASSERT_NE(driver, nullptr);
    ASSERT_EQ(driver->library(), TRUEFUSE_FAKE_CUDA);
  }
  int depth() { return reinterpret_cast<int (*)()>(dlsym(handle, "fake_depth"))(); }
};

TEST_F(CudaDriver, SaysWhatTheDeviceIs) {
  const DeviceFacts facts = driver->facts(0);
  EXPECT_EQ(facts.arch, "sm_90a");
  EXPECT_EQ(facts.multiprocessors, 132);
  EXPECT_EQ(facts.max_grid_threads_x, 2147483647LL * 1024);
  EXPECT_EQ(facts.wave, 32);
  EXPECT_EQ(facts.max_shared_bytes, 49152);
  EXPECT_EQ(facts.max_shared_bytes_opt_in, 232448);
  EXPECT_EQ(driver->device_name(1), "Fake 1");
  EXPECT_EQ(driver->device_count(), 2);
  fake.major = 8;
  EXPECT_EQ(driver->facts(0).arch, "sm_80");
}

TEST_F(CudaDriver, LoadsInTheDevicesContextAndLeavesNoneBehind) {
  const Function function = driver->load(1, "cubin", "present");
  EXPECT_EQ(function.max_threads, 128);
  EXPECT_EQ(fake.device_at_load, 1);
  EXPECT_EQ(depth(), 0);
}

TEST_F(CudaDriver, LoadingIsAllowedDuringACaptureAndTheModeIsGivenBack) {
  driver->load(0, "cubin", "present");
  EXPECT_EQ(fake.capture_mode_at_load, 2);
  EXPECT_EQ(fake.capture_mode, 0);
}

TEST_F(CudaDriver, ErrorsCarryTheDriversNameAndWords) {
  const std::string message = error_of([&] { driver->load(0, "other", "present"); });
  EXPECT_EQ(message,
            "cuModuleLoadData failed: CUDA_ERROR_NO_BINARY_FOR_GPU (209, as the driver words it)");
  EXPECT_EQ(depth(), 0);
  EXPECT_EQ(fake.capture_mode, 0);
  EXPECT_NE(error_of([&] { driver->load(0, "cubin", "absent"); }).find("cuModuleGetFunction"),
            std::string::npos);
  EXPECT_NE(error_of([&] { driver->load(64, "cubin", "present"); }).find("0..63"),
            std::string::npos);
}

TEST_F(CudaDriver, LaunchesOnTheGivenStream) {
  const Function function = driver->load(1, "cubin", "present");
  Launch planned = launch_of(42);
  int stream = 0;
  launch(*driver, 1, function, planned, &stream);
  EXPECT_EQ(fake.launches, 1);
  EXPECT_EQ(fake.grid, 7U);
  EXPECT_EQ(fake.block, 128U);
  EXPECT_EQ(fake.stream, &stream);
  EXPECT_EQ(fake.first_parameter, 42);
  EXPECT_EQ(depth(), 0);
}

TEST_F(CudaDriver, ALaunchStartsEarlyWhereThePlanAllowsItAndTheDeviceCan) {
  const Function function = driver->load(1, "cubin", "present");
  Launch planned = launch_of(42);
  launch(*driver, 1, function, planned, nullptr);
  EXPECT_EQ(fake.early_launches, 0);
  planned.starts_early = true;
  int stream = 0;
  launch(*driver, 1, function, planned, &stream);
  EXPECT_EQ(fake.early_launches, 1);
  EXPECT_EQ(fake.launches, 2);
  EXPECT_EQ(fake.grid, 7U);
  EXPECT_EQ(fake.block, 128U);
  EXPECT_EQ(fake.stream, &stream);
  EXPECT_EQ(fake.first_parameter, 42);
  EXPECT_EQ(depth(), 0);
  fake.launch_result = 1;
  EXPECT_NE(
      error_of([&] { launch(*driver, 1, function, planned, nullptr); }).find("cuLaunchKernelEx"),
      std::string::npos);
}

TEST_F(CudaDriver, OlderDevicesAndDriversLaunchInTheUsualWay) {
  Launch planned = launch_of(42);
  planned.starts_early = true;
  fake.major = 8;
  launch(*driver, 0, driver->load(0, "cubin", "present"), planned, nullptr);
  fake.major = 9;
  fake.version = 12020;
  launch(*driver, 1, driver->load(1, "cubin", "present"), planned, nullptr);
  EXPECT_EQ(fake.launches, 2);
  EXPECT_EQ(fake.early_launches, 0);
}

TEST_F(CudaDriver, LargeSharedMemoryIsOptedInto) {
  const Function function = driver->load(0, "cubin", "present");
  Launch planned = launch_of(1);
  planned.shared_bytes = 48 << 10;
  launch(*driver, 0, function, planned, nullptr);
  EXPECT_EQ(fake.dynamic_shared, 0);
  planned.shared_bytes = 64 << 10;
  launch(*driver, 0, function, planned, nullptr);
  EXPECT_EQ(fake.dynamic_shared, 64 << 10);
  planned.shared_bytes = 56 << 10;  // Not taken from launches of other threads.
  launch(*driver, 0, function, planned, nullptr);
  EXPECT_EQ(fake.dynamic_shared, 64 << 10);
}

TEST_F(CudaDriver, SharedMemoryOfTheKernelItselfCountsToo) {
  fake.static_shared = 128;
  const Function function = driver->load(0, "cubin", "present");
  Launch planned = launch_of(1);
  planned.shared_bytes = (48 << 10) - 128;
  launch(*driver, 0, function, planned, nullptr);
  EXPECT_EQ(fake.dynamic_shared, 0);
  planned.shared_bytes = 48 << 10;
  launch(*driver, 0, function, planned, nullptr);
  EXPECT_EQ(fake.dynamic_shared, 48 << 10);
}

TEST_F(CudaDriver, ThreadsThatOptIntoDifferentSizesDoNotDisturbEachOther) {
  const Function function = driver->load(0, "cubin", "present");
  constexpr int kLaunches = 2000;
  const auto launch_many = [&](std::uint32_t bytes) {
    std::string error = "no error";
    for (int i = 0; i < kLaunches && error == "no error"; ++i) {
      Launch planned = launch_of(1);
      planned.shared_bytes = bytes;
      error = error_of([&] { launch(*driver, 0, function, planned, nullptr); });
    }
    return error;
  };
  auto large = std::async(std::launch::async, [&] { return launch_many(200 << 10); });
  EXPECT_EQ(launch_many(64 << 10), "no error");
  EXPECT_EQ(large.get(), "no error");
  EXPECT_EQ(fake.launches, 2 * kLaunches);
}

TEST_F(CudaDriver, AFailedLaunchIsAnError) {
  const Function function = driver->load(0, "cubin", "present");
  fake.launch_result = 1;
  Launch planned = launch_of(1);
  EXPECT_NE(
      error_of([&] { launch(*driver, 0, function, planned, nullptr); }).find("cuLaunchKernel"),
      std::string::npos);
  EXPECT_EQ(depth(), 0);
}

TEST_F(CudaDriver, AForkedProcessIsToldThatItIsOne) {
  const Function function = driver->load(0, "cubin", "present");
  const pid_t child = fork();
  if (child == 0) {
    Launch planned = launch_of(1);
    const std::string message = error_of([&] { launch(*driver, 0, function, planned, nullptr); });
    const bool is_told = message.find("CUDA_ERROR_NOT_INITIALIZED") != std::string::npos &&
                         message.find("This process was forked") != std::string::npos;
    if (!is_told) fprintf(stderr, "%s\n", message.c_str());
    _exit(is_told ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  Launch planned = launch_of(2);
  launch(*driver, 0, function, planned, nullptr);
  EXPECT_EQ(fake.first_parameter, 2) << "this process goes on";
}

class HipDriver : public ::testing::Test {
 protected:
  void* handle = map(TRUEFUSE_FAKE_HIP);
  FakeState& fake = state_of(handle);
  std::unique_ptr<Driver> driver = open_hip_driver();

  void SetUp() override {
    fake = FakeState();
    ASSERT_NE(driver, nullptr);
    ASSERT_EQ(driver->library(), TRUEFUSE_FAKE_HIP);
  }
  int current() { return reinterpret_cast<int (*)()>(dlsym(handle, "fake_current_device"))(); }
};

TEST_F(HipDriver, DtksOwnRuntimeIsPreferredAndItsArchTakenWhole) {
  EXPECT_TRUE(hip_runtime_is_mapped());
  const DeviceFacts facts = driver->facts(1);
  EXPECT_EQ(facts.arch, "gfx936:sramecc+:xnack-");
  EXPECT_EQ(facts.wave, 64);
  EXPECT_EQ(facts.multiprocessors, 80);
  EXPECT_EQ(facts.max_grid_threads_x, 4294967295);
  EXPECT_EQ(facts.max_shared_bytes, 65536);
  EXPECT_EQ(facts.max_shared_bytes_opt_in, 65536);
  EXPECT_EQ(driver->device_name(0), "BW1000");
}

TEST_F(HipDriver, TheCurrentDeviceIsGivenBack) {
  const Function function = driver->load(1, "\177ELF", "present");
  EXPECT_EQ(fake.device_at_load, 1);
  EXPECT_EQ(current(), 0);
  Launch planned = launch_of(9);
  launch(*driver, 1, function, planned, &planned);
  EXPECT_EQ(fake.device_at_launch, 1);
  EXPECT_EQ(fake.first_parameter, 9);
  EXPECT_EQ(current(), 0);
}

TEST_F(HipDriver, CodeForAnotherChipIsAnErrorWithItsNumber) {
  EXPECT_EQ(error_of([&] { driver->load(1, "text", "present"); }),
            "hipModuleLoadData failed: hipErrorInvalidKernelFile (218, invalid kernel file)");
  EXPECT_EQ(current(), 0);
}

TEST(Library, NamesMatchUpToADot) {
  map(TRUEFUSE_FAKE_HIP);
  EXPECT_TRUE(Library::mapped({"libgalaxyhip.so"}));
  EXPECT_FALSE(Library::mapped({"libgalaxy.so"}));
  EXPECT_FALSE(Library::mapped({"libgalaxyhip.s"}));
  EXPECT_FALSE(Library::open({"libtruefuse-absent.so.1"}));
}

TEST(Library, AMissingFunctionIsNamed) {
  map(TRUEFUSE_FAKE_HIP);
  const auto library = Library::mapped({"libgalaxyhip.so"});
  ASSERT_TRUE(library);
  EXPECT_EQ(library->find("hipGraphLaunch"), nullptr);
  const std::string message = error_of([&] { library->require("hipGraphLaunch"); });
  EXPECT_NE(message.find(TRUEFUSE_FAKE_HIP), std::string::npos);
  EXPECT_NE(message.find("hipGraphLaunch"), std::string::npos);
}

}  // namespace
}  // namespace truefuse::gpu
