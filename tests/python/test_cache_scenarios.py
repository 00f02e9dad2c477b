"""What has gone wrong elsewhere when kernels were compiled, kept and loaded, and which of our tests
would notice it here. A table, and a test that its tests exist."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]

# Reports are issues or pull requests of github.com; C++ tests are Suite.Name, Python's are test_name.
SCENARIOS = {
    "a killed builder's lock makes every later start hang (pytorch/pytorch#189245)":
        "CacheProcesses.KilledBuilderBlocksNobody CacheProcesses.LockOfTheDeadIsTakenOver "
        "CacheProcesses.StuckBuilderIsNamedThenLeftAlone",
    "every rank compiles; an empty object is published (deepseek-ai/DeepGEMM#301)":
        "CacheProcesses.SixteenAtOnceCompileOnce Nvcc.ACompilerThatLiesIsAnError "
        "Cache.CompilerWithoutCodeIsAnErrorAndPublishesNothing "
        "CacheProcesses.FailedCompileLetsTheNextTry",
    "cleaning up, or reading back, fails after a good build (triton-lang/triton#11512)":
        "CacheFaults.CleaningUpMayFail CacheFaults.LateVisibilityCostsACompile "
        "CacheFaults.ARenameWhoseAnswerIsLostHasHappened",
    "a truncated file is trusted for ever (pytorch/pytorch#186346)":
        "Cache.DamageIsAMissOneWarningAndIsReplaced CacheDamage.NoByteOfAnEntryCanBeChangedUnnoticed "
        "Entry.EveryFlippedBitIsNoticed Entry.EveryOtherLengthIsNoticed "
        "Bundle.NoOtherBytesAreABundle",
    "an interrupted start leaves a half-written source that is used again (ROCm/aiter#4799)":
        "TemporaryDirectory.IsPrivateAndRemoved Nvcc.LeavesNothingBehind "
        "CacheProcesses.KilledPublisherLeavesTheOldOrTheNewEntry",
    "modification times decide what is fresh (flashinfer-ai/flashinfer#4489)":
        "Cache.ModificationTimesDoNotMatter FileIdentity.IsTheContentNotThePlaceOrTime "
        "Build.AnythingThatCanChangeTheCodeIsAnotherEntry",
    "one home, two kinds of GPU: the other's code is used (NVIDIA/flashdreams#216)":
        "Build.DevicesThatShareADirectoryHaveTheirOwnEntries "
        "Build.CodeForAnEarlierChipServesOnlyWhereNoneMayBeCompiled",
    "the architecture is cut down to its number (pytorch/pytorch#120794)":
        "Key.WholeArchitectureStringsDiffer Build.DevicesThatShareADirectoryHaveTheirOwnEntries",
    "a compiler or library patched in place goes unnoticed (AMD-Ecosystem/flashinfer#283)":
        "Build.ACompilerIsItsContentNotItsPlace Nvrtc.IdentityIsContentAndEnvironment "
        "HipRtc.IdentityIsContentAndEnvironment Hipcc.IdentityIsContentAndEnvironment",
    "files written beside sources, stale or half copied (ROCm/hipify_torch#81)":
        "ProgramFiles.StayInsideTheirDirectory Resolve.PlantedFilesChangeNothing "
        "Nvcc.LeavesNothingBehind",
    "two builds share one work folder (flashinfer-ai/flashinfer#2338)":
        "CacheProcesses.OtherKeysDoNotWait CacheProcesses.ThreadsCompileOnceForEachKey "
        "TemporaryDirectory.IsPrivateAndRemoved",
    "the second user of a shared folder has no permission (pytorch/pytorch#34238)":
        "CacheDirectory.SecondUserGetsTheirOwn CacheDirectory.NothingUsableMeansMemoryAndOneWarning",
    "no home, or a read-only one, although compiled kernels are there (vllm-project/vllm#28440)":
        "CacheDirectory.MissingOrForeignHomeFallsBackToTmp "
        "CacheDirectory.ReadOnlyMountIsReadIfItHoldsEntries CacheDirectory.OwnedByRootIsRead",
    "NVRTC does not find its builtins (NVIDIA/numba-cuda#196)":
        "Nvrtc.FindsItsBuiltinsBesideItself",
    "PTX is newer than the driver (gwoltman/gpuowl#31)":
        "Nvrtc.CompilesACubinWithHeadersFromMemory "
        "Nvrtc.AReportedArchThatItDoesNotKnowFallsBackToOneThatRunsThere",
    "a forked child uses the parent's driver or compiler (triton-lang/triton#10443)":
        "Nvrtc.CompilesInAForkedChild CudaDriver.AForkedProcessIsToldThatItIsOne",
    "an image without toolkit and headers (pytorch/pytorch#197483)":
        "Toolchains.NvrtcIsFoundInPythonPackages "
        "Toolchains.WithoutAnyCompilerTheErrorSaysWhatToInstall test_importing_needs_torch_alone "
        "BuildWithoutCompiler.AnEntryOfTheSameRequestServes",
    "a library built for another PyTorch (huggingface/optimum-quanto#194)":
        "test_under_another_torch_the_import_is_one_sentence_with_the_command",
    "two copies of one library in a process (ROCm/TheRock#4476)":
        "Toolchains.TheNvrtcThatPyTorchWouldLoadComesFirst Library.NamesMatchUpToADot "
        "HipDriver.DtksOwnRuntimeIsPreferredAndItsArchTakenWhole",
    "a compiler library ends the process over an unknown target (ROCm/rocm-systems#1058)":
        "HipRtc.RefusesWhatWouldAbort CompileHelper.EveryEndIsAnOrdinaryError "
        "HipRtc.AReportedArchIsDecidedByACompileInAProcessOfItsOwn",
    "two threads compile at once and the process dies (Debian's hipRTC 5.2.3)":
        "HipRtc.CompilesFromSeveralThreads",
    "a kernel over which the compiler crashes, or does not end, takes the process with it":
        "CompilerLibrary.ThatCrashesTakesDownNothingAndIsAskedAgain CompilerLibrary.ThatHangsIsStopped "
        "CompileHelper.AKernelThatCrashesHipRtcIsAnError CompileHelper.EveryEndIsAnOrdinaryError "
        "CompileHelper.EndsWithWhoeverAsked CompileHelper.HasALimitOfItsOwn "
        "CacheProcesses.StuckBuilderIsNamedThenLeftAlone",
    "code is planted at a path that can be foreseen (gmboquet/mixle#331)":
        "CacheDirectory.UntrustedDirectoriesAreRefused Cache.PlantedFilesAreMisses "
        "CacheFaults.SquashedOwnersAreNotTrusted",
    "kernels of one name are one kernel (arrayfire/arrayfire#3182)":
        "Build.AnythingThatCanChangeTheCodeIsAnotherEntry "
        "Build.OneEntryDoesNotServeAnotherProcesssSource",
    "eviction takes an entry that is being read (nengo/nengo#557)":
        "CacheLimit.ReadersNeverSeeHalfAnEntry CacheProcesses.ReadersOfChangingEntriesSeeWholeOnes",
    "an old prebuilt kernel wins over a fresh one (warpfront/hipfire#127)":
        "Bundle.FilesOfTheCompilerAndTheTargetAreNoPartOfTheRequest Bundle.IsAskedBeforeAnyCompiler",
    "the device has no code for its chip (pytorch/pytorch#53738)":
        "HipDriver.CodeForAnotherChipIsAnErrorWithItsNumber "
        "CudaDriver.ErrorsCarryTheDriversNameAndWords",
    "an unknown chip silently gets another path (kokkos/kokkos#9403)":
        "HipRtc.AReportedArchFallsBackToItsBaseName Toolchains.AnArchThatNothingKnowsIsAnError",
    "the first call of a process is inside a graph capture (ROCm/hip#3876)":
        "CudaDriver.LoadingIsAllowedDuringACaptureAndTheModeIsGivenBack "
        "test_first_call_of_a_process_with_an_empty_cache",
    "loading a module ends the process instead of failing (Hygon DTK)":
        "test_report_of_this_machine test_a_failing_kernel_on_a_sound_device",
    "the wave size that was compiled in is another target's (ROCm/MIOpen#1469)":
        "test_each_rule_catches_what_it_is_for test_every_kernel_keeps_the_rules",
    "shared memory that fits one chip and not its sibling (HYGON-AI/sglang-das#326)":
        "test_shared_memory_that_no_kernel_declares_is_caught test_every_kernel_keeps_the_rules",
    "stale handles, no locks, a full disk, a network file system":
        "CacheFaults.AnEntryThatCannotBeReadIsCompiledAgain "
        "CacheFaults.WithoutLocksItCompilesPrivatelyAndPublishes "
        "CacheFaults.FailuresToPublishCostOnlyTime CacheFaults.NetworkFileSystemIsOnlyRead "
        "SmallFileSystem.HasNoRoomForALargeEntry "
        "SmallFileSystem.KeepsWhatFitsAndGoesOnOnceThereIsRoom",
}  # fmt: skip


@functools.cache
def existing() -> set[str]:
    names = set()
    for path in TESTS.rglob("*_test.cpp"):
        text = path.read_text(encoding="utf-8")
        names |= {
            f"{a}.{b}" for a, b in re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", text, re.M)
        }
    for path in TESTS.rglob("test_*.py"):
        names |= set(re.findall(r"^def (test_\w+)\(", path.read_text(encoding="utf-8"), re.M))
    return names


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_scenario_has_its_tests(scenario):
    missing = set(SCENARIOS[scenario].split()) - existing()
    assert not missing
