"""The benchmark over PyTorch's op database, on a few of its ops."""

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("expecttest", reason="PyTorch's op database needs expecttest")


@pytest.mark.filterwarnings("ignore")  # PyTorch's own, of its test modules
def test_ops_of_pytorchs_database_under_both_checks(capsys):
    from benchmarks import bench_torch_ops

    bench_torch_ops.main(("sin", "mm", "linalg.eigh", "nn.functional.hinge_embedding_loss"))
    out = capsys.readouterr().out
    assert "4 ops, " in out
    assert "ours PASS             gradcheck pass" in out
    assert "WRONG" not in out.split("where the two differ:")[0]
