(() => {
  "use strict";
  const findings = [...document.querySelectorAll("details.finding")];
  const every = () => [...document.querySelectorAll("details")];
  const button = document.getElementById("expand");

  const label = () => {
    if (button) button.textContent = findings.every((item) => item.open) ? "Collapse all" : "Expand all";
  };
  const toggleAll = () => {
    const open = !findings.every((item) => item.open);
    for (const item of findings) item.open = open;
    label();
  };

  let at = -1;
  const move = (by) => {
    const focused = findings.findIndex((item) => item.contains(document.activeElement));
    if (focused >= 0) at = focused;
    at = Math.max(0, Math.min(findings.length - 1, at + by));
    const head = findings[at].querySelector("summary");
    head.focus({ preventScroll: true });
    findings[at].scrollIntoView({ block: "start" });
  };

  const openTarget = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const around = target && target.closest("details");
    if (around && !around.open) {
      around.open = true;
      target.scrollIntoView();
    }
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !findings.length) return;
    if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "e") toggleAll();
  });
  for (const item of findings) item.addEventListener("toggle", label);
  addEventListener("hashchange", openTarget);
  openTarget();

  let closed = [];
  addEventListener("beforeprint", () => {
    closed = every().filter((item) => !item.open);
    for (const item of closed) item.open = true;
  });
  addEventListener("afterprint", () => {
    for (const item of closed) item.open = false;
  });

  if (findings.length) {
    if (button) {
      button.hidden = false;
      button.addEventListener("click", toggleAll);
      label();
    }
    document.getElementById("keys").hidden = false;
  }
})();
