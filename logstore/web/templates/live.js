// "live": the page is fetched again every two seconds, and its main part replaced. What cannot be
// undone asks first.
"use strict";
const box = document.getElementById("live");
const EVERY_MS = 2000;
box.checked = sessionStorage.getItem("live") === "on";
box.addEventListener("change", () => sessionStorage.setItem("live", box.checked ? "on" : "off"));

async function again() {
  const main = document.getElementById("main");
  const busy = main.contains(document.activeElement) || main.querySelector("details[open]");
  if (!box.checked || document.hidden || busy) return;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById("main");
    if (fresh) main.replaceWith(fresh);
    document.body.classList.remove("lost");
  } catch {
    document.body.classList.add("lost");
  }
}
setInterval(again, EVERY_MS);

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(button.dataset.copy);
  button.textContent = "Copied";
});

document.addEventListener("submit", (event) => {
  const question = event.target.dataset.ask;
  if (question && !confirm(question)) event.preventDefault();
});
