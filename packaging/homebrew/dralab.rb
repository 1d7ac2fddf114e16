# The formula for a tap: `make release` fills it in and writes dist/dralab.rb.
class Dralab < Formula
  desc "Dry lab for Kubernetes devices: API server, device scheduler, drivers, clock"
  homepage "@HOME@"
  url "@BASE@/dralab-@VERSION@.tar.gz"
  sha256 "@SHA256@"
  license "Apache-2.0"

  depends_on :linux
  depends_on "python@3.13"

  # In a tap, pip may fetch what dralab needs; homebrew-core wants a resource for each
  # (brew update-python-resources).
  def install
    system Formula["python@3.13"].opt_bin/"python3.13", "-m", "venv", libexec
    system libexec/"bin/pip", "install", "--disable-pip-version-check", "#{buildpath}[grpc]"
    bin.install_symlink libexec/"bin/dralab", libexec/"bin/kubectl-dra"
    generate_completions_from_executable(bin/"dralab", shells: [:bash, :zsh, :fish], shell_parameter_format: :click)
    system bin/"dralab", "man", buildpath/"man1"
    man1.install Dir["man1/*.1"]
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/dralab --version")
    assert_match "gpu.nvidia.com", shell_output("#{bin}/dralab generate h100 --nodes 1")
  end
end
