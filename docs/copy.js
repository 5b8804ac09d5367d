// The copy button of a console gives what one types: no prompts, and not what was printed.
// Material's own handler takes data-clipboard-text if a button has it; this one comes first.
document.addEventListener("click", event => {
  const button = event.target.closest("[data-clipboard-target]")
  const block = button && document.querySelector(button.dataset.clipboardTarget)
  if (!block || !block.closest(".language-console"))
    return
  let goes_on = false // a line that ends in a backslash
  const typed = block.textContent.split("\n").filter(line => {
    const taken = goes_on || line.startsWith("$ ")
    goes_on = taken && line.endsWith("\\")
    return taken
  })
  if (typed.length)
    button.dataset.clipboardText = typed.map(line => line.replace(/^\$ /, "")).join("\n") + "\n"
}, true)
