// The copy button of a console gives what one types: no prompts, and not what was printed.
// Material's own handler takes data-clipboard-text if a button has it; this one comes first.
document.addEventListener("click", event => {
  const button = event.target.closest("[data-clipboard-target]")
  const block = button && document.querySelector(button.dataset.clipboardTarget)
  if (!block || !block.closest(".language-console"))
    return
  const typed = block.textContent.split("\n").filter(line => line.startsWith("$ "))
  if (typed.length)
    button.dataset.clipboardText = typed.map(line => line.slice(2)).join("\n") + "\n"
}, true)
